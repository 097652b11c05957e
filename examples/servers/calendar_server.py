"""An MCP server for a calendar, on stdio: `python examples/servers/calendar_server.py`.

The week it knows is fixed, and no call changes it: the same call always gets the same answer.
"""

from typing import Literal

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError

server = FastMCP("calendar", log_level="WARNING")

EVENTS = {
    "evt_1": "Monday 09:30 Stand-up",
    "evt_2": "Monday 12:30 Lunch with Priya",
    "evt_3": "Tuesday 14:00 Design review",
    "evt_4": "Thursday 08:15 Dentist",
    "evt_5": "Friday 17:00 Yoga",
}


def _event(event_id: str) -> str:
    """Look an event up."""
    if event_id not in EVENTS:
        raise ToolError(f"no event {event_id!r}; there are {', '.join(EVENTS)}")
    return EVENTS[event_id]


def _lines(query: str) -> str:
    """List the events whose day, time or title contains the query, one a line."""
    found = [f"{key}: {event}" for key, event in EVENTS.items() if query.lower() in event.lower()]
    return "\n".join(found) or "Nothing in the calendar"


@server.tool()
def list_calendar_events(day: str = "") -> str:
    """Show my meetings, appointments and plans on a day of the week, or in the whole week."""
    return _lines(day)


@server.tool()
def search_calendar_events(query: str) -> str:
    """Find when I am meeting somebody or when something takes place, by words of its title."""
    return _lines(query)


@server.tool()
def create_calendar_event(
    title: str, day: str, time: str, attendees: list[str] | None = None
) -> str:
    """Schedule a meeting, book an appointment or block time, and invite people to it."""
    guests = f" with {', '.join(attendees)}" if attendees else ""
    return f"Created evt_{len(EVENTS) + 1}: {day} {time} {title}{guests}"


@server.tool()
def update_calendar_event(event_id: str, day: str, time: str) -> str:
    """Move a meeting to another day or time."""
    return f"Moved '{_event(event_id)}' to {day} {time}"


@server.tool()
def delete_calendar_event(event_id: str) -> str:
    """Cancel a meeting or take an appointment off my calendar."""
    return f"Cancelled '{_event(event_id)}'"


@server.tool()
def respond_to_invitation(
    event_id: str, answer: Literal["accept", "decline", "maybe"] = "accept"
) -> str:
    """Accept or decline an invitation to a meeting, or answer maybe."""
    return f"Answered '{answer}' to '{_event(event_id)}'"


@server.tool()
def find_free_time(attendees: list[str], duration_minutes: int = 30) -> str:
    """Find a slot when everybody is free to meet."""
    return f"{' and '.join(attendees)}: free Wednesday 10:00 for {duration_minutes} minutes"


if __name__ == "__main__":
    server.run()
