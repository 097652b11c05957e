"""The inspector's page, in a real browser where there is one."""

import contextlib
import json
import re
import shutil
import threading
import time
from html.parser import HTMLParser

import pytest
import uvicorn
from fakes import NamedEmbeddings
from waiting import until

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.server import serving
from langchain_toolrag.server.app import create_app
from langchain_toolrag.server.inspector import page, page_headers
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.server.services import Services

SCRIPT = '<img src=x onerror="window.pwned = 1"><script>window.pwned = 1</script>'
TOOLS = {
    "weather": [
        ("get_weather", "Current weather in a city: warm or cold, rain or sun."),
        ("get_forecast", "Weather forecast for the next days."),
    ],
    "mail": [
        ("send_email", "Sends an email to somebody."),
        ("search_email", "Finds mails by sender or words."),
    ],
    "music": [("play_song", "Plays a song on the speakers."), ("skip_song", "Skips a song.")],
    "evil": [("brew_potion", f"Brews a potion. {SCRIPT}"), ("search", "Search.")],
}
CONVERSATION = [
    {"role": "user", "content": "play a song"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "1",
                "type": "function",
                "function": {"name": "music__play_song", "arguments": '{"city": "x"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": "la"},
    {"role": "user", "content": "tell me the current weather in the city, warm or cold"},
]


def fill(directory, tools):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    ToolDirectory(directory).replace(
        [
            Listing(
                StoredSource(source, "mcp", source, {"command": "there-is-none"}),
                [StoredTool(f"{source}/{n}", source, "mcp", n, said, schema) for n, said in listed],
            )
            for source, listed in tools.items()
        ]
    )


@contextlib.contextmanager
def running(directory, **options):
    """A server on a port of its own; yields its address."""
    services = Services(
        directory, ServerOptions(**options), embeddings=NamedEmbeddings(), environment={}
    )
    config = uvicorn.Config(create_app(services), port=0, ws="none", log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started and services.serving.ready, 20)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module", autouse=True)
def _looks_often():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(serving, "_POLL_SECONDS", 0.05)
        yield


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    fill(directory, TOOLS)
    with running(directory, log_text=True) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens pages in windows of their own; `faults` are errors that a page does not handle."""
    faults, contexts = [], []

    def open_one(address, *, clock=False, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if _is_fault(said) else None)
        if clock:
            page.clock.install()
        page.faults = faults
        page.goto(address)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert faults == []


def _is_fault(said):
    """The browser notes each status that is no success by itself; the page says what it means."""
    return said.type == "error" and not said.text.startswith("Failed to load resource")


@pytest.fixture
def opened(open_page, address):
    page = open_page(address)
    page.wait_for_selector("#legend button >> nth=3")
    return page


def search(page, text):
    page.fill("#request", text)
    page.press("#request", "Enter")
    page.wait_for_selector("#answer:not([hidden])")


def names(page, where):
    return page.locator(f"{where} .name").all_inner_texts()


class TestSearch:
    def test_enter_shows_what_is_bound_and_why_and_what_is_not(self, opened):
        search(opened, "will it be warm or cold in the city")
        first = opened.locator("#bound .tool").first

        assert first.locator(".name").inner_text().startswith("weather__get_weather")
        assert "found by meaning and words" in first.inner_text()
        assert first.locator(".evidence.dense .bar i").bounding_box()["width"] > 5
        assert first.locator(".evidence.lexical .bar i").bounding_box()["width"] > 5
        assert names(opened, "#below")
        assert re.search(r"The cut: \d bound, the next scores 0\.\d+", opened.inner_text("#cut"))
        assert "warm or cold" in opened.inner_text("#query q")
        assert "of 8" in opened.inner_text("#readings")
        assert re.search(r"SAVED\s+\d\d\.\d %", opened.inner_text("#readings"))

    def test_a_screen_reader_is_told_what_came_of_it(self, opened):
        search(opened, "will it be warm or cold in the city")

        assert "First: weather__get_weather" in opened.text_content("#told[role=status]")
        assert opened.locator(".evidence.dense .hidden-text").first.text_content() == "dense "

    def test_a_pasted_conversation_counts_with_its_calls(self, opened):
        search(opened, json.dumps(CONVERSATION, indent=1))
        called = opened.locator("#bound .tool", has_text="music__play_song")

        assert "A conversation of 4 messages" in opened.inner_text("#reading")
        assert "called" in called.locator(".evidence.sticky").inner_text()
        assert "called" not in opened.locator("#bound .evidence.sticky").first.inner_text()

    def test_lines_of_speakers_are_a_conversation(self, opened):
        lines = "user: what is the weather in the city\nassistant: Sunny.\nUser: and the next days?"
        search(opened, lines)

        assert "A conversation of 3 messages" in opened.inner_text("#reading")
        assert "Context: what is the weather" in opened.inner_text("#query q")

    def test_shift_and_enter_starts_a_line_and_does_not_search(self, opened):
        opened.fill("#request", "user: hello")
        opened.press("#request", "Shift+Enter")

        assert opened.input_value("#request") == "user: hello\n"
        assert opened.is_hidden("#answer")

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ('[{"role": "user"', "cannot be read"),
            ('{"text": "hello"}', "list of messages"),
            ('[{"role": "nobody", "content": "x"}]', "each with role and content"),
        ],
    )
    def test_what_cannot_be_read_is_said_and_leaves_no_older_answer(self, opened, text, problem):
        search(opened, "a song")
        opened.fill("#request", text)
        opened.press("#request", "Enter")
        opened.wait_for_selector(f"#failure[role=alert]:has-text('{problem}')")

        assert opened.is_hidden("#answer")

    def test_small_talk_says_that_nothing_was_searched_for(self, opened):
        search(opened, "thank you!")

        assert "small talk" in opened.inner_text("#cut")

    def test_a_tool_opens_to_what_it_takes(self, opened):
        search(opened, "warm or cold")
        opened.locator("#bound summary").first.press("Enter")
        opened.wait_for_selector("#bound .inside:has-text('city string')")

    def test_a_server_that_is_gone_is_said_to_be(self, open_page, tmp_path):
        fill(tmp_path, TOOLS)
        with running(tmp_path) as address:
            page = open_page(address)
            page.wait_for_selector("#legend button")
        page.fill("#request", "a song")
        page.press("#request", "Enter")

        page.wait_for_selector("#failure:has-text('does not answer')")


class TestMap:
    def test_the_tools_found_are_ringed_and_the_request_is_marked(self, opened):
        search(opened, "will it be warm or cold in the city")
        opened.wait_for_selector("#map .request")

        assert opened.locator("#map .ring:not(.under)[cx]").count() >= 1
        assert opened.locator("#map .points").count() == 4
        assert opened.locator("#legend svg").count() == 4

    def test_arrow_keys_go_over_it_and_enter_opens_a_tool(self, opened):
        opened.focus("#map")
        opened.keyboard.press("ArrowRight")
        opened.keyboard.press("ArrowUp")
        said = opened.text_content("#map-here")
        name = said.partition(",")[0]

        assert opened.is_visible("#tip")
        assert name in opened.inner_text("#tip")
        opened.keyboard.press("Enter")
        opened.wait_for_selector("#tools details[open] .inside:has-text('Takes')")
        assert names(opened, "#tools")[0].startswith(name)

    def test_a_pressed_server_stands_out(self, opened):
        opened.click("#legend button:has-text('mail')")

        assert opened.get_attribute("#legend button:has-text('mail')", "aria-pressed") == "true"
        assert opened.locator("#map .points.muted").count() == 3

    def test_a_mouse_sees_the_tool_under_it(self, opened):
        opened.focus("#map")
        opened.keyboard.press("ArrowRight")
        ring = opened.locator(".ring.pointed").bounding_box()
        name = opened.inner_text("#tip .name")
        opened.keyboard.press("Escape")
        assert opened.is_hidden("#tip")
        middle = ring["x"] + ring["width"] / 2, ring["y"] + ring["height"] / 2
        for shift in (0, 1) * 20:  # The map may be drawn anew just now, under a mouse at rest.
            opened.mouse.move(middle[0] + shift, middle[1])
            if opened.is_visible("#tip .name"):
                break
            opened.wait_for_timeout(100)

        assert opened.inner_text("#tip .name") == name


class TestCatalogue:
    def test_it_is_filtered_by_words_server_and_mark(self, opened):
        opened.click("#tab-catalogue")
        opened.wait_for_selector("#tally:has-text('lint mark')")

        opened.fill("#words", "email send_")
        assert [name.split()[0] for name in names(opened, "#tools")] == ["mail__send_email"]
        opened.fill("#words", "")
        opened.select_option("#server", "music")
        assert len(names(opened, "#tools")) == 2
        opened.select_option("#server", "")
        opened.select_option("#code", "repeats-name")
        assert [name.split()[0] for name in names(opened, "#tools")] == [
            "music__skip_song",
            "evil__search",
        ]
        assert "repeats-name" in opened.inner_text("#tools .mark >> nth=0")
        opened.click("#tools summary")
        opened.wait_for_selector("#tools .inside:has-text('Better:')")

    def test_a_new_catalogue_shows_without_a_reload(self, open_page, tmp_path):
        fill(tmp_path, {"music": TOOLS["music"]})
        with running(tmp_path) as address:
            page = open_page(address, clock=True)
            page.wait_for_selector("#state:has-text('2 tools')")
            search(page, "send an email to play a song")
            fill(tmp_path, {"mail": TOOLS["mail"]})
            deadline = time.monotonic() + 20
            while "4 tools" not in page.inner_text("#state") and time.monotonic() < deadline:
                page.clock.run_for(1000)

            assert "4 tools of 2 servers" in page.inner_text("#state")
            assert page.locator("#map .points").count() == 2
            page.wait_for_selector("#bound .name:has-text('mail__send_email')")

    def test_an_empty_one_says_how_to_fill_it(self, open_page, tmp_path):
        fill(tmp_path, {"music": []})
        with running(tmp_path) as address:
            page = open_page(address)
            page.wait_for_selector("#map-about:has-text('no tools yet')")
            search(page, "play a song")
            assert "empty" in page.inner_text("#cut")
            page.click("#tab-catalogue")
            assert "toolrag ingest" in page.inner_text("#tally")


class TestRecent:
    def test_searches_and_calls_are_listed_and_can_be_tried_again(self, opened, address):
        asked = """async (query) => {
          const headers = { "Content-Type": "application/json" };
          const send = (path, body) =>
            fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
          await send("/v1/search", { query });
          await send("/v1/feedback", { name: "mail__send_email", outcome: "tool_error" });
        }"""
        opened.evaluate(asked, "play <b>a song</b>")
        opened.click("#tab-recent")

        def listed():
            opened.click("#again")
            opened.wait_for_timeout(100)
            return opened.locator("#log li").count() >= 2

        until(listed, 20)
        assert "✕ tool error" in opened.locator("#log li").first.inner_text()
        opened.click("#log button:has-text('play <b>a song</b>')")
        opened.wait_for_selector("#answer:not([hidden])")
        assert opened.input_value("#request") == "play <b>a song</b>"


class TestSafety:
    def test_html_of_a_tool_stays_text_wherever_it_is_shown(self, opened):
        search(opened, "brew a potion")
        opened.wait_for_selector("#bound .said:has-text('<script>')")
        opened.locator("#bound summary").first.click()
        opened.wait_for_selector("#bound .inside:has-text('Takes')")
        opened.click("#tab-catalogue")
        opened.fill("#words", "potion")
        assert SCRIPT in opened.inner_text("#tools .said")
        opened.click("#tab-search")
        opened.evaluate("point(known.places.find((place) => place.id === 'evil/brew_potion'))")
        assert "<img src=x" in opened.inner_text("#tip")

        assert opened.evaluate("window.pwned") is None
        assert opened.locator("main img, main script").count() == 0

    def test_the_browser_runs_no_script_but_the_pages_own(self, opened):
        put_in = """() => {
          const script = document.createElement("script");
          try { script.textContent = "window.pwned = 1"; document.body.append(script); }
          catch { return "refused"; }
        }"""
        assert opened.evaluate(put_in) == "refused"
        assert opened.evaluate("window.pwned") is None
        assert all("TrustedScript" in fault for fault in opened.faults)
        opened.faults.clear()

    def test_only_this_server_is_asked(self, open_page, address):
        page = open_page("about:blank")
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.wait_for_selector("#legend button")
        search(page, "a song")
        page.click("#tab-catalogue")
        page.click("#tab-recent")
        page.wait_for_selector("#log-about:has-text('usage log')")

        assert len(asked) > 5
        assert {url for url in asked if not url.startswith((address, "data:"))} == set()

    def test_the_key_is_asked_for_and_kept_in_the_tab_alone(self, open_page, tmp_path):
        fill(tmp_path, TOOLS)
        with running(tmp_path, api_key="open-sesame") as address:
            page = open_page(address)
            page.wait_for_selector("dialog[open] #key-text:focus")
            page.keyboard.type("wrong")
            page.keyboard.press("Enter")
            page.wait_for_selector("#key-problem:has-text('does not accept')")
            page.fill("#key-text", "open-sesame")
            page.keyboard.press("Enter")
            page.wait_for_selector("#legend button")
            search(page, "play a song")

            assert names(page, "#bound")[0].startswith("music__play_song")
            assert page.is_hidden("dialog")
            stored = "[JSON.stringify(sessionStorage), JSON.stringify(localStorage)]"
            session, local = page.evaluate(stored)
            assert "open-sesame" in session
            assert "open-sesame" not in local + page.content() + page.evaluate("document.cookie")

    def test_who_closes_the_question_for_the_key_can_open_it_again(self, open_page, tmp_path):
        fill(tmp_path, TOOLS)
        with running(tmp_path, api_key="open-sesame") as address:
            page = open_page(address)
            page.wait_for_selector("dialog[open]")
            page.keyboard.press("Escape")
            page.wait_for_selector("#connection:has-text('only with its key')")
            page.click("#key")
            page.fill("dialog[open] #key-text", "open-sesame")
            page.click("dialog button.main")

            page.wait_for_selector("#legend button")
            page.wait_for_selector("#connection:empty", state="attached")


class TestAppearance:
    def test_tabs_go_by_arrow_keys_and_slash_leads_to_the_request(self, opened):
        opened.focus("#tab-search")
        opened.keyboard.press("ArrowRight")
        assert opened.is_visible("#catalogue")
        assert opened.evaluate("document.activeElement.id") == "tab-catalogue"
        opened.keyboard.press("/")
        assert opened.evaluate("document.activeElement.id") == "request"
        assert opened.input_value("#request") == ""

    def test_what_has_the_focus_is_seen_to_have_it(self, opened):
        search(opened, "a song")
        for _ in range(12):
            opened.keyboard.press("Tab")
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert opened.evaluate(f"document.activeElement === document.body || {outline}") in (
                True,
                "solid",
            )

    def test_it_follows_the_systems_theme_and_the_switch(self, open_page, address):
        ground = "getComputedStyle(document.body).backgroundColor"
        light = open_page(address, color_scheme="light").evaluate(ground)
        page = open_page(address, color_scheme="dark")

        assert page.evaluate(ground) != light
        page.click("#theme")
        assert page.evaluate(ground) == light
        page.reload()
        assert page.inner_text("#theme") == "Theme: light"
        assert page.evaluate(ground) == light

    @pytest.mark.parametrize("width", [400, 320])
    def test_a_narrow_window_has_nothing_beside_it(self, open_page, address, width):
        page = open_page(address, viewport={"width": width, "height": 800})
        page.wait_for_selector("#legend button")
        search(page, "will it be warm or cold in the city")
        for view in ("search", "catalogue", "recent"):
            page.click(f"#tab-{view}")
            page.wait_for_timeout(100)
            assert page.evaluate("document.documentElement.scrollWidth") <= width


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


class TestFile:
    def test_it_asks_no_other_server_for_anything(self):
        parser = _Tags()
        parser.feed(page())
        named = [each for _, given in parser.seen for each in (given.get("src"), given.get("href"))]

        assert [each for each in named if each] == ["data:,"]
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+", re.sub(r"(?m)^\s*//.*", "", page())))
        assert {each for each in addresses if "." in each} == {"http://www.w3.org"}  # SVG's name.
        assert "@import" not in page()

    def test_it_puts_nothing_in_as_html(self):
        ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"

        assert re.search(ways, page()) is None

    def test_its_policy_lets_only_its_own_script_and_style_run(self):
        policy = page_headers()["Content-Security-Policy"]
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

        assert rules["default-src"] == "'none'"
        assert re.fullmatch(r"'sha256-[\w+/]{43}='", rules["script-src"])
        assert re.fullmatch(r"'sha256-[\w+/]{43}='", rules["style-src"])
        assert rules["connect-src"] == "'self'"
        assert rules["frame-ancestors"] == "'none'"
        assert not re.search(
            r"\son\w+=|\sstyle=", page().partition("<body>")[2].partition("<script>")[0]
        )

    @pytest.mark.parametrize("theme", [0, 1])
    def test_its_colours_can_be_read(self, theme):
        pairs = re.findall(r"--([a-z]+): light-dark\((#\w{6}), (#\w{6})\)", page())
        colours = {name: values[theme] for name, *values in pairs}
        servers = [values[theme] for name, *values in pairs if name == "server"]

        for ground in (colours[name] for name in ("paper", "sheet", "wash")):
            for text in ("ink", "quiet", "accent", "bad", "warn"):
                assert contrast(colours[text], ground) >= 4.5
        assert contrast(colours["sheet"], colours["accent"]) >= 4.5
        for bar in ("dense", "lexical", "keyword", "sticky"):
            assert contrast(colours[bar], colours["track"]) >= 3
        assert len(servers) == 8
        assert min(contrast(colour, colours["sheet"]) for colour in servers) >= 3


def contrast(one, other):
    """WCAG's ratio of two colours, 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
