"""An MCP server for music, on stdio: `python examples/servers/music_server.py`.

It holds four songs and plays the first one, whatever it is told: the same call always gets the
same answer.
"""

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError

server = FastMCP("music", log_level="WARNING")

TRACKS = {
    "trk_1": "Slow Rivers by Mara Holt",
    "trk_2": "Blue Hour by The Lanterns",
    "trk_3": "Paper Boats by Ana Vidal",
    "trk_4": "Night Train by The Lanterns",
}


def _track(track_id: str) -> str:
    """Look a song up."""
    if track_id not in TRACKS:
        raise ToolError(f"no track {track_id!r}; there are {', '.join(TRACKS)}")
    return TRACKS[track_id]


@server.tool()
def search_spotify(query: str, limit: int = 10) -> str:
    """Search Spotify for songs by their title or by the artist or band."""
    found = [f"{key}: {song}" for key, song in TRACKS.items() if query.lower() in song.lower()]
    return "\n".join(found[:limit]) or f"No song found for '{query}'"


@server.tool()
def play_track(track_id: str) -> str:
    """Play a song now."""
    return f"Now playing: {_track(track_id)}"


@server.tool()
def pause_playback() -> str:
    """Pause the music, stop the song or make it quiet."""
    return "Paused"


@server.tool()
def skip_to_next_track() -> str:
    """Skip this song and play the next one."""
    return f"Now playing: {TRACKS['trk_2']}"


@server.tool()
def skip_to_previous_track() -> str:
    """Go back to the song before this one."""
    return f"Now playing: {TRACKS['trk_4']}"


@server.tool()
def get_current_track() -> str:
    """Name the song that is playing and who sings it."""
    return f"Playing: {TRACKS['trk_1']}, 1:42 of 3:55"


@server.tool()
def set_playback_volume(percent: int) -> str:
    """Make the music louder or quieter."""
    if not 0 <= percent <= 100:
        raise ToolError(f"volume {percent} is not between 0 and 100")
    return f"Volume {percent} %"


@server.tool()
def add_track_to_playlist(track_id: str, playlist: str) -> str:
    """Put a song into one of my playlists."""
    return f"Added {_track(track_id)} to {playlist}"


if __name__ == "__main__":
    server.run()
