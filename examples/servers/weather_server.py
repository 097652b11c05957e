"""An MCP server for the weather, on stdio: `python examples/servers/weather_server.py`.

It makes its answers up from a hash of the question: the same question gets the same answer.
"""

import hashlib
from typing import Literal

from mcp.server.fastmcp import FastMCP

server = FastMCP("weather", log_level="WARNING")


def _draw(question: str, low: int, high: int) -> int:
    """Draw a number from `low` to `high`, the same for the same question whatever its case."""
    digest = hashlib.sha256(question.casefold().encode()).hexdigest()
    return low + int(digest, 16) % (high - low + 1)


def _celsius(city: str, day: int = 0) -> int:
    """Draw a temperature; other days differ a little from today."""
    return _draw(f"{city} now", 4, 34) + (_draw(f"{city} {day}", -4, 4) if day else 0)


def _sky(city: str, day: int = 0) -> str:
    """Draw what the sky looks like on a day from today."""
    return ("sunny", "overcast", "light rain", "windy")[_draw(f"sky {city} {day}", 0, 3)]


@server.tool()
def get_weather(city: str, units: Literal["metric", "imperial"] = "metric") -> str:
    """Tell the current weather in a city: is it raining, snowing or sunny, is it warm or cold."""
    celsius = _celsius(city)
    temperature = f"{celsius} C" if units == "metric" else f"{celsius * 9 // 5 + 32} F"
    return f"{city}: {temperature}, {_sky(city)}"


@server.tool()
def get_weather_forecast(city: str, days: int = 3) -> str:
    """Tell what the weather will be like tomorrow or at the weekend, and if I need an umbrella."""
    outlook = (f"day {day} {_celsius(city, day)} C {_sky(city, day)}" for day in range(1, days + 1))
    return f"{city}: {', '.join(outlook)}"


@server.tool()
def get_air_quality(city: str) -> str:
    """Tell how clean or polluted the air is: smog, pollen, fine dust."""
    return f"{city}: air quality index {_draw(f'air {city}', 12, 160)}"


@server.tool()
def get_uv_index(city: str) -> str:
    """Tell how strong the sun is, and whether I should wear sunscreen."""
    return f"{city}: UV index {_draw(f'uv {city}', 1, 10)}"


@server.tool()
def get_sunrise_sunset(city: str, date: str = "today") -> str:
    """Tell when the sun comes up and goes down, and when it gets dark."""
    rise, fall = (_draw(f"{event} {city} {date}", 10, 59) for event in ("rise", "fall"))
    return f"{city}, {date}: sunrise 06:{rise}, sunset 19:{fall}"


@server.tool()
def get_storm_warnings(region: str) -> str:
    """List official warnings of storms, floods, heat waves or ice for a region."""
    warnings = ("no warnings", "storm until midnight", "heat until Friday", "ice on the roads")
    return f"{region}: {warnings[_draw(f'warning {region}', 0, 3)]}"


if __name__ == "__main__":
    server.run()
