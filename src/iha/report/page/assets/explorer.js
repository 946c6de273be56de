// The attention explorer: maps of pseudo-queries x pseudo-keys, alpha and R, and Algorithm 1 step by step.
"use strict";
(() => {
  const inside = data.explorer;
  const box = document.getElementById("explorer-app");
  if (!inside || !box) return;
  const $ = (id) => document.getElementById(id);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const signed = (text) => new Int8Array(bytes(text).buffer);
  const names = Object.keys(inside.models);
  const subscript = (number) => String(number).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
  const shown = (token) => token.replace(/\n/g, "⏎").replace(/^ /, "␣").replace(/ /g, "\u00a0") || "∅";

  // --- a heat map: canvas with one cell per number, read by mouse, touch or arrow keys
  class HeatMap {
    constructor(parent, title, describe) {
      this.describe = describe;
      this.element = document.createElement("div");
      this.element.className = "map";
      this.heading = document.createElement("h3");
      this.heading.textContent = title;
      this.canvas = document.createElement("canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "img");
      this.element.append(this.heading, this.canvas);
      parent.append(this.element);
      this.at = null;
      this.canvas.addEventListener("pointermove", (event) => {
        const place = this.canvas.getBoundingClientRect();
        this.point(
          Math.floor(((event.clientY - place.top) / place.height) * this.rows),
          Math.floor(((event.clientX - place.left) / place.width) * this.columns),
        );
      });
      this.canvas.addEventListener("pointerleave", () => this.point(null));
      this.canvas.addEventListener("keydown", (event) => {
        const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        if (!steps) return;
        event.preventDefault();
        const [row, column] = this.at || [0, 0];
        this.point(row + steps[0], column + steps[1]);
      });
    }
    point(row, column) {
      this.at = row === null ? null
        : [Math.max(0, Math.min(this.rows - 1, row)), Math.max(0, Math.min(this.columns - 1, column))];
      this.paint();
      $("explorer-readout").textContent = this.at ? this.describe(...this.at, this.values[this.at[0] * this.columns + this.at[1]]) : "";
    }
    show(values, rows, columns, { largest = 1, lines = 0, label = "" } = {}) {
      Object.assign(this, { values, rows, columns, largest, lines });
      if (this.at && (this.at[0] >= rows || this.at[1] >= columns)) this.at = null;
      this.canvas.setAttribute("aria-label", `${this.heading.textContent}: ${label}${rows} rows, ${columns} columns. Arrow keys read single cells.`);
      this.paint();
    }
    paint() {
      const size = Math.max(2, Math.min(24, Math.floor(640 / Math.max(this.rows, this.columns))));
      this.canvas.width = this.columns * size;
      this.canvas.height = this.rows * size;
      const pen = this.canvas.getContext("2d");
      const heat = css("--heat");
      for (let row = 0; row < this.rows; row++) {
        for (let column = 0; column < this.columns; column++) {
          const value = this.values[row * this.columns + column] / this.largest;
          pen.fillStyle = value >= 0 ? `rgb(${heat} / ${Math.min(1, value)})` : `rgb(190 80 40 / ${Math.min(1, -value)})`;
          pen.fillRect(column * size, row * size, size, size);
        }
      }
      if (this.lines > 1) {
        pen.strokeStyle = css("--line");
        pen.lineWidth = 1;
        pen.beginPath();
        for (let at = this.lines; at < this.columns; at += this.lines) { pen.moveTo(at * size + 0.5, 0); pen.lineTo(at * size + 0.5, this.canvas.height); }
        for (let at = this.lines; at < this.rows; at += this.lines) { pen.moveTo(0, at * size + 0.5); pen.lineTo(this.canvas.width, at * size + 0.5); }
        pen.stroke();
      }
      if (this.at) {
        pen.strokeStyle = css("--ink");
        pen.lineWidth = 2;
        pen.strokeRect(this.at[1] * size + 1, this.at[0] * size + 1, size - 2, size - 2);
      }
    }
  }

  // --- choices
  const fill = (select, count, text) => {
    const before = Math.min(Number(select.value) || 0, count - 1);
    select.replaceChildren(...Array.from({ length: count }, (_, index) => new Option(text(index), index)));
    select.value = before;
  };
  const first = inside.models[names[0]];
  fill($("explorer-example"), inside.examples.length, (index) => inside.examples[index].tokens.join("").slice(0, 48) + "…");
  fill($("explorer-layer"), first.length, (index) => `${index} · ${first[index].P > 1 || first[index].alpha_q ? "IHA, P = " + first[index].P : "multi-head"}${first[index].window ? ", window " + first[index].window : ""}`);
  const heads = () => fill($("explorer-head"), first[Number($("explorer-layer").value)].H, (index) => String(index));
  heads();

  // --- maps: the first model's interleaved map and its P² patterns, beside the other models' one
  const maps = $("explorer-maps"), patterns = $("explorer-patterns"), mixing = $("explorer-mixing");
  function weightsOf(name, example, layer, head) {
    const facts = inside.models[name][layer];
    const width = inside.examples[example].tokens.length * facts.P;
    const all = bytes(inside.examples[example].maps[name][layer]);
    return { width, P: facts.P, weights: Float32Array.from(all.subarray(head * width * width, (head + 1) * width * width), (value) => (value / 255) ** 2) };
  }
  const root2 = (weights) => Float32Array.from(weights, Math.sqrt);
  function drawMaps() {
    const example = Number($("explorer-example").value), layer = Number($("explorer-layer").value), head = Number($("explorer-head").value);
    const tokens = inside.examples[example].tokens.map(shown);
    maps.replaceChildren(); patterns.replaceChildren(); mixing.replaceChildren();
    for (const name of names) {
      const theirs = Math.min(head, inside.models[name][layer].H - 1);
      const { width, P, weights } = weightsOf(name, example, layer, theirs);
      const token = (index) => `${tokens[Math.floor(index / P)]}${P > 1 ? subscript(index % P) : ""}`;
      const map = new HeatMap(maps, `${name}, layer ${layer}, head ${theirs}${P > 1 ? `: ${width} virtual tokens` : ""}`,
        (row, column) => `${name}: ${token(row)} attends to ${token(column)} with weight ${weights[row * width + column].toFixed(3)}`);
      map.show(root2(weights), width, width, { lines: P > 1 && width < 80 ? P : 0, label: `attention weights over ${tokens.length} tokens; ` });
      if (P > 1) {
        for (let p = 0; p < P; p++) for (let r = 0; r < P; r++) {
          const n = tokens.length, part = new Float32Array(n * n);
          for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) part[i * n + j] = weights[(i * P + p) * width + j * P + r];
          const small = new HeatMap(patterns, `pseudo-query ${p} × pseudo-key ${r}`,
            (row, column) => `pseudo-query ${p} of ${tokens[row]} attends to pseudo-key ${r} of ${tokens[column]} with weight ${part[row * n + column].toFixed(3)}`);
          small.show(root2(part), n, n);
        }
      }
    }
    const facts = first[layer];
    $("explorer-mixing-note").textContent = facts.alpha_q
      ? `Head ${head}: how much of every head goes into each of its pseudo-heads (α), and how its pseudo-heads are summed again (R).`
      : "This layer is multi-head attention: it has no pseudo-heads and no mixing.";
    if (facts.alpha_q) {
      for (const [key, title] of [["alpha_q", "α of queries"], ["alpha_k", "α of keys"], ["alpha_v", "α of values"]]) {
        const count = key === "alpha_q" ? facts.H : facts.G, mine = key === "alpha_q" ? head : Math.floor(head * facts.G / facts.H);
        const part = Float32Array.from({ length: facts.P * count }, (_, at) => facts[key][((at % count) * count + mine) * facts.P + Math.floor(at / count)]);
        const map = new HeatMap(mixing, title, (row, column) => `${title}: pseudo-head ${row} takes ${part[row * count + column].toFixed(3)} of head ${column}`);
        map.show(part, facts.P, count, { largest: Math.max(...part.map(Math.abs), 1e-6) });
      }
      const perHead = facts.collapse.length === facts.H * facts.P, columns = facts.collapse.length / facts.H;
      const row = Float32Array.from(facts.collapse.slice(head * columns, (head + 1) * columns));
      const map = new HeatMap(mixing, "R", (_, column) => `R: the output takes ${row[column].toFixed(3)} of pseudo-head ${perHead ? column : column % facts.P}${perHead ? "" : " of head " + Math.floor(column / facts.P)}`);
      map.show(row, 1, columns, { largest: Math.max(...row.map(Math.abs), 1e-6) });
    }
  }

  // --- Algorithm 1, tensor by tensor
  const STEPS = [
    ["Project", ["q", "k", "v"], "Every token gets a query, a key and a value per head, as in multi-head attention. Rows are tokens, columns the features of this head."],
    ["Mix", ["pseudo_q", "pseudo_k", "pseudo_v"], "α makes P pseudo-queries, pseudo-keys and pseudo-values of each head: mixtures of all heads. They stand interleaved, the P pseudo-heads of a token next to each other: N·P virtual tokens."],
    ["Attend", ["weights"], "One ordinary causal attention over the virtual tokens: P² patterns between any two tokens. Rows attend to columns."],
    ["Read values", ["pseudo_out"], "Every virtual token sums the pseudo-values it attends to."],
    ["Collapse", ["out"], "R sums the P outputs of a token back into one per head. The output projection follows, as in multi-head attention."],
  ];
  let step = 0;
  const stepList = $("explorer-steps"), stepMaps = $("explorer-step-maps");
  const layers = Object.keys(inside.steps.layers);
  function drawStep() {
    const wanted = $("explorer-layer").value;
    const layer = layers.includes(wanted) ? wanted : layers[0];
    const head = Number($("explorer-head").value), tokens = inside.steps.tokens.map(shown);
    const [title, keys, text] = STEPS[step];
    $("explorer-step-text").textContent = `Layer ${layer}, head ${head}, on “${inside.steps.tokens.join("")}”. ${text}`;
    stepMaps.replaceChildren();
    for (const key of keys) {
      const tensor = inside.steps.layers[layer][key], all = signed(tensor.bytes), P = first[Number(layer)].P;
      const value = (raw) => (raw / 127) * tensor.largest;
      if (key === "weights") {
        const [, rows, columns] = tensor.shape;
        const map = new HeatMap(stepMaps, `weights (${rows} × ${columns})`, (row, column, raw) => `${tokens[Math.floor(row / P)]}${subscript(row % P)} → ${tokens[Math.floor(column / P)]}${subscript(column % P)}: ${value(raw).toFixed(3)}`);
        map.show(all.subarray(head * rows * columns, (head + 1) * rows * columns), rows, columns, { largest: 127, lines: P });
      } else {
        const [rows, count, columns] = tensor.shape, mine = Math.floor(head * count / first[Number(layer)].H);
        const part = Int8Array.from({ length: rows * columns }, (_, at) => all[(Math.floor(at / columns) * count + mine) * columns + (at % columns)]);
        const virtual = rows > tokens.length;
        const map = new HeatMap(stepMaps, `${key.replace("_", " ")} (${rows} × ${columns})`, (row, column, raw) => `${virtual ? tokens[Math.floor(row / P)] + subscript(row % P) : tokens[row]}, feature ${column}: ${value(raw).toFixed(3)}`);
        map.show(part, rows, columns, { largest: 127 });
      }
    }
    [...stepList.querySelectorAll("button")].forEach((button, index) => button.setAttribute("aria-pressed", String(index === step)));
  }
  STEPS.forEach(([title], index) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.textContent = `${index + 1}. ${title}`;
    button.addEventListener("click", () => { step = index; drawStep(); });
    item.append(button);
    stepList.append(item);
  });

  const drawAll = () => { drawMaps(); if (layers.length) drawStep(); };
  $("explorer-layer").addEventListener("change", () => { heads(); drawAll(); });
  $("explorer-head").addEventListener("change", drawAll);
  $("explorer-example").addEventListener("change", drawAll);
  document.addEventListener("theme", drawAll);
  drawAll();
})();
