// The page without its data: theme, charts, copy buttons, search in the errata, current section.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();

// --- theme: the system's until the reader chooses; stored where storage is allowed
const stored = (() => { try { return localStorage.getItem("iha-theme"); } catch { return null; } })();
const system = matchMedia("(prefers-color-scheme: dark)");
function setTheme(theme) {
  root.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.setAttribute("aria-pressed", String(theme === "dark"));
  drawCharts();
  document.dispatchEvent(new Event("theme"));
}
document.getElementById("theme").addEventListener("click", () => {
  const theme = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("iha-theme", theme); } catch { /* a page from disk may have no storage */ }
  setTheme(theme);
});
system.addEventListener("change", (event) => { if (!stored) setTheme(event.matches ? "dark" : "light"); });

// --- charts: drawn when they come into view, again when the theme or an axis changes
const axes = {};
function patched(spec, id) {
  const copy = structuredClone(spec);
  const change = (node) => {
    if (node === null || typeof node !== "object") return;
    for (const axis of ["x", "y"]) {
      const encoding = node.encoding && node.encoding[axis];
      if (encoding && encoding.type === "quantitative" && axes[id] && axes[id].has(axis)) {
        const { zero, domain, ...scale } = encoding.scale || {};  // neither has a meaning with a logarithm
        encoding.scale = { ...scale, type: "log" };
      }
    }
    Object.values(node).forEach(change);
  };
  change(copy);
  const ink = css("--ink"), soft = css("--soft"), line = css("--line");
  copy.background = "transparent";
  copy.config = {
    ...(copy.config || {}),
    font: "system-ui, sans-serif",
    view: { stroke: null },
    title: { color: ink },
    axis: { labelColor: soft, titleColor: soft, gridColor: line, domainColor: line, tickColor: line, labelFontSize: 12, titleFontSize: 12 },
    legend: { labelColor: ink, titleColor: soft, labelFontSize: 12, titleFontSize: 12, labelLimit: 260 },
    header: { labelColor: ink, titleColor: soft },
    text: { color: ink },
  };
  return copy;
}
const drawn = new Map();
function draw(element) {
  const id = element.dataset.chart;
  if (!window.vegaEmbed) return;
  vegaEmbed(element.querySelector(".canvas"), patched(data.charts[id], id), { actions: false, renderer: "svg" })
    .then((result) => { if (drawn.get(id)) drawn.get(id).finalize(); drawn.set(id, result); element.dataset.drawn = "yes"; })
    .catch((error) => { element.textContent = `This chart could not be drawn: ${error.message}`; console.error(error); });
}
function drawCharts() {
  document.querySelectorAll(".plot[data-drawn]").forEach(draw);
}
document.querySelectorAll(".plot").forEach((element) => {
  const id = element.dataset.chart;
  axes[id] = new Set();
  const controls = document.createElement("div");
  controls.className = "controls";
  for (const axis of (element.dataset.log || "").split(" ").filter(Boolean)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `logarithmic ${axis} axis`;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      const on = !axes[id].has(axis);
      on ? axes[id].add(axis) : axes[id].delete(axis);
      button.setAttribute("aria-pressed", String(on));
      draw(element);
    });
    controls.append(button);
  }
  if (controls.childElementCount) element.before(controls);
  const canvas = document.createElement("div");
  canvas.className = "canvas";
  canvas.style.width = "100%";
  element.append(canvas);
});
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) { watcher.unobserve(entry.target); draw(entry.target); }
  }
}, { rootMargin: "400px" });
document.querySelectorAll(".plot").forEach((element) => watcher.observe(element));
addEventListener("beforeprint", () => document.querySelectorAll(".plot:not([data-drawn])").forEach(draw));

// --- copy buttons
document.addEventListener("click", async (event) => {
  const button = event.target.closest(".copy");
  if (!button) return;
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "copied";
  } catch {
    const range = document.createRange();
    range.selectNodeContents(code);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    button.textContent = "selected";
  }
  setTimeout(() => { button.textContent = "copy"; }, 1500);
});

// --- search in the errata
const search = document.getElementById("errata-search");
if (search) {
  const entries = [...document.querySelectorAll(".errata article")];
  const chosen = document.getElementById("errata-class");
  const found = document.getElementById("errata-found");
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const entry of entries) {
      const text = entry.textContent.toLowerCase();
      const show = words.every((word) => text.includes(word)) && (!chosen.value || entry.dataset.class === chosen.value);
      entry.hidden = !show;
      count += show;
    }
    found.textContent = `${count} of ${entries.length}`;
  };
  search.addEventListener("input", filter);
  chosen.addEventListener("change", filter);
  filter();
}

// --- the section in view is marked in the navigation
const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const sections = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    links.forEach((link) => link.removeAttribute("aria-current"));
    const link = links.get(entry.target.id);
    if (link) link.setAttribute("aria-current", "true");
  }
}, { rootMargin: "-30% 0px -60% 0px" });
document.querySelectorAll("section[id]").forEach((section) => sections.observe(section));

setTheme(stored || (system.matches ? "dark" : "light"));
