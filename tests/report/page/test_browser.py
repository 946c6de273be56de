"""The page in a real browser: nothing loaded, nothing broken, every control does what it says."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian's package: chromium)")
# The browser talks to nobody: these keep it from looking up its maker's hosts.
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, page, tmp_path_factory, request):
    """The page, opened from disk; whatever it complains about or asks for is collected."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page, encoding="utf-8")
    width, scheme = getattr(request, "param", (1400, "light"))
    view = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    view.complaints = []
    loud = ("error", "warning")
    view.on("console", lambda message: view.complaints.append(message.text) if message.type in loud else None)
    view.on("pageerror", lambda error: view.complaints.append(str(error)))
    outside = ("file:", "data:", "blob:")
    view.on("request", lambda r: None if r.url.startswith(outside) else view.complaints.append(r.url))
    view.goto(path.as_uri())
    draw_everything(view)
    yield view
    assert view.complaints == []
    view.close()


def draw_everything(view):
    """Charts are drawn when they come into view."""
    for plot in view.query_selector_all(".plot"):
        plot.scroll_into_view_if_needed()
        view.wait_for_function("element => element.dataset.drawn === 'yes'", arg=plot)


BOTH_WAYS = [(400, "light"), (1400, "light"), (400, "dark"), (1400, "dark")]


@pytest.mark.parametrize("opened", BOTH_WAYS, indirect=True, ids=lambda p: f"{p[0]}-{p[1]}")
def test_nothing_sticks_out_or_overlaps(opened):
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
    overlapping = opened.evaluate(
        """() => {
            const boxes = [...document.querySelectorAll("h1, h2, h3, p, th, td, figcaption, label, nav a, button")]
                .filter((e) => e.offsetParent && !e.closest(".scroll, nav"))
                .map((e) => [e, e.getBoundingClientRect()]);
            const found = [];
            for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
                const [a, p] = boxes[i], [b, q] = boxes[j];
                if (a.contains(b) || b.contains(a)) continue;
                const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
                const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
                if (wide > 2 && high > 2) found.push([a.textContent.slice(0, 40), b.textContent.slice(0, 40)]);
            }
            return found;
        }"""
    )
    assert overlapping == []


@pytest.mark.parametrize("opened", [(400, "light"), (1400, "dark")], indirect=True, ids=lambda p: f"{p[0]}-{p[1]}")
def test_axe_finds_nothing_serious(opened):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    violations = axe.run(opened).response["violations"]
    serious = [(v["id"], v["nodes"][0]["html"][:200]) for v in violations if v["impact"] in ("serious", "critical")]
    assert serious == []


def test_the_theme_changes_and_charts_are_drawn_again(opened):
    def colours():
        label = opened.locator("#curve svg text").first
        return opened.evaluate("getComputedStyle(document.body).backgroundColor"), label.get_attribute("fill")

    before = colours()
    opened.click("#theme")
    opened.wait_for_function(f"document.querySelector('#curve svg text').getAttribute('fill') !== {before[1]!r}")
    assert colours()[0] != before[0]
    assert opened.get_attribute("#theme", "aria-pressed") == "true"


def test_an_axis_becomes_logarithmic(opened):
    def ticks():
        return opened.locator("#curve svg .role-axis-label").all_text_contents()

    before = ticks()
    opened.click("#curve button:has-text('logarithmic y axis')")
    opened.wait_for_timeout(300)
    assert ticks() != before


def test_a_series_is_chosen_in_the_legend(opened):
    def faint():
        return opened.evaluate(
            "[...document.querySelectorAll('#curve svg .mark-symbol path')]"
            ".filter((path) => path.getAttribute('opacity') === '0.12').length"
        )

    assert faint() == 0
    opened.locator("#curve svg .role-legend-symbol path").first.click()
    opened.wait_for_timeout(300)
    assert faint() > 0


def pixels(view, selector):
    return view.evaluate("selector => document.querySelector(selector).toDataURL()", selector)


@pytest.mark.parametrize(("control", "value"), [("layer", "1"), ("head", "2"), ("example", "1")])
def test_the_explorer_follows_its_controls(opened, control, value):
    before = pixels(opened, "#explorer-maps canvas")
    opened.select_option(f"#explorer-{control}", value)
    assert pixels(opened, "#explorer-maps canvas") != before


def test_the_explorer_shows_every_pair_of_pseudo_heads(opened):
    assert opened.locator("#explorer-patterns canvas").count() == 4
    opened.select_option("#explorer-layer", "4")  # the global layer: multi-head attention
    assert opened.locator("#explorer-patterns canvas").count() == 0
    assert "no pseudo-heads" in opened.inner_text("#explorer-mixing-note")


def test_a_weight_is_read_by_mouse_and_by_keyboard(opened, inside):
    from iha.evaluate.inside import attention_maps

    canvas = opened.locator("#explorer-maps canvas").first
    canvas.scroll_into_view_if_needed()
    canvas.hover()
    assert "attends to" in opened.inner_text("#explorer-readout")
    canvas.focus()
    for key in ["ArrowUp"] * 40 + ["ArrowLeft"] * 40 + ["ArrowDown"] * 3 + ["ArrowRight"] * 2:
        canvas.press(key)
    import torch

    weights = attention_maps(inside[0]["IHA"], torch.tensor(list(b"The boss of Ann"[:12])))[0][0]
    shown = float(opened.inner_text("#explorer-readout").rsplit(" ", 1)[1])
    assert shown == pytest.approx(weights[3, 2].item(), abs=0.01)


def test_algorithm_1_has_five_steps(opened):
    shapes = []
    for step in range(5):
        opened.locator("#explorer-steps button").nth(step).click()
        shapes.append(opened.locator("#explorer-step-maps h3").all_text_contents())
    assert shapes == [
        ["q (6 × 8)", "k (6 × 8)", "v (6 × 8)"],
        ["pseudo q (12 × 8)", "pseudo k (12 × 8)", "pseudo v (12 × 8)"],
        ["weights (12 × 12)"],
        ["pseudo out (12 × 8)"],
        ["out (6 × 8)"],
    ]


def test_the_errata_are_searched(opened):
    everything = opened.locator(".errata article:visible").count()
    opened.fill("#errata-search", "strictness construction")
    assert 0 < opened.locator(".errata article:visible").count() < everything
    opened.fill("#errata-search", "")
    opened.select_option("#errata-class", "misprint")
    shown = opened.locator(".errata article:visible")
    assert {shown.nth(i).get_attribute("data-class") for i in range(shown.count())} == {"misprint"}


def test_a_command_is_copied_or_selected(opened):
    button = opened.locator(".missing .copy")
    button.click()
    opened.wait_for_function("document.querySelector('.missing .copy').textContent !== 'copy'")
    assert button.inner_text() in ("copied", "selected")


def test_text_is_not_markup(opened):
    assert "<b>markup</b>" in opened.inner_text("#curves p")
