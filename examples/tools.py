"""A catalogue of tools as an assistant with thirteen connected services would have.

`TOOLS` holds them. Each is one row of `SERVICES`: its signature in Python's own notation, its
purpose in the words of a user and, after `=>`, its reply. There `{city}` is an argument,
`{4..34}` a number and `{sunny|overcast}` a choice, both drawn from a hash of the call: the same
call always gets the same reply. No service is ever contacted.
"""

import hashlib
import re
from ast import literal_eval
from textwrap import dedent
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import create_model

SERVICES = {
    "weather": """
    get_weather(city): Retrieves the current weather in a city: whether it is raining, snowing,
        sunny or windy, the temperature, and how warm or cold it feels outside. => {city}: {4..34}
        C, {humid|dry|breezy}, {light rain|sunny|overcast|clear sky}
    get_weather_forecast(city, days=3): Tells what the weather will be like tomorrow, at the weekend
        or over the next days. Use this to decide whether to take an umbrella. => {city}, next
        {days} days: {8..17} to {18..31} C, {mostly sunny|showers|a storm late on}
    get_hourly_forecast(city, hours=12): Hour by hour outlook for today, for instance when the rain
        is going to stop. => {city}: {dry all day|rain until 15:00|showers from 16:00}, up to
        {8..31} C
    get_historical_weather(city, date): Looks up how hot, cold or wet it was on a day in the past.
        => {city} on {date}: {2..33} C, {dry|rain|windy and dry}
    get_air_quality(city): How clean or polluted the air is right now: smog, pollen, fine dust. =>
        {city}: air quality index {12..160}, pollen {low|moderate|high}
    get_uv_index(city): How strong the sun is, and whether you need sunscreen. => {city}: UV index
        {1..10}
    get_sunrise_sunset(city, date='today'): When the sun comes up and goes down, and when it gets
        dark. => {city}, {date}: sunrise 0{5..7}:{10..59}, sunset {17..20}:{10..59}
    get_storm_warnings(region): Official warnings of storms, floods, heat waves or ice for a region.
        => {region}: {no warnings|storm until midnight|heat until Friday}
    get_snow_report(resort): Snow depth and open ski lifts at a winter resort. => {resort}:
        {10..220} cm of snow, {3..24} lifts open
    create_weather_alert(city, condition): Lets me know when it is about to rain, freeze or get too
        hot somewhere.
    delete_weather_alert(alert_id): Stops one of the weather notifications I asked for.
    """,
    "calendar": """
    list_calendar_events(start='today', end='today'): Shows what is on my calendar: meetings,
        appointments and plans for today, this week or any period. => {start} to {end}:
        {Stand-up|Design review} 09:{10..55}, {Lunch with Priya|Dentist} 12:30, {Budget call|Yoga}
        17:{10..55}
    get_calendar_event(event_id): Opens one appointment with its time, place, guests and notes.
    search_calendar_events(query): Finds when I am meeting somebody or when something takes place,
        by words.
    create_calendar_event(title, start, duration_minutes=60, attendees: list[str] = []): Schedules a
        meeting, books an appointment or blocks time in my calendar, and invites people to it.
    update_calendar_event(event_id, title='', start='', duration_minutes=0): Moves a meeting to
        another time, reschedules, renames or shortens it.
    delete_calendar_event(event_id): Cancels a meeting or takes an appointment off my calendar.
    respond_to_invitation(event_id, answer='accept'): Accepts or declines an invitation, or answers
        maybe.
    find_free_time(attendees: list[str], duration_minutes=30): Finds a slot when everybody is free
        to meet. => Everybody is free {Monday|Tuesday|Thursday} at {9..16}:30 for {duration_minutes}
        minutes
    check_availability(person, start): Tells whether a colleague is free or busy at some time. =>
        {person} is {free|busy} at {start}
    subscribe_to_holidays(country): Shows the public holidays of a country among my appointments.
    share_calendar(calendar_id, person): Lets somebody else see my schedule.
    set_working_hours(start, end): Sets the hours in which people may book me.
    """,
    "email": """
    send_email(to: list[str], subject, body): Sends an email. Use this to write to somebody, mail a
        person or let them know something in writing. => Email '{subject}' sent to {to}
    reply_to_email(email_id, body): Answers a mail I have received, in the same thread.
    forward_email(email_id, to: list[str]): Passes a mail on to another person.
    create_email_draft(to: list[str], subject, body): Prepares a mail without sending it, so that I
        can look at it first.
    list_emails(folder='inbox', limit=10): Shows the latest mail: anything new or unread in my
        inbox? => {folder}: {Invoice March|Re: offsite|Your parcel} (unread),
        {Minutes|Newsletter|Welcome} and {2..9} more
    search_emails(query, limit=10): Finds mails by sender, subject or words, for instance the one
        with the invoice.
    get_email(email_id): Opens a mail and reads out the full text. => {email_id}: {Please find the
        invoice attached.|See you on Monday!|Any news?}
    delete_email(email_id): Throws a mail away, moving it to the bin.
    archive_email(email_id): Takes a mail out of the inbox but keeps it.
    mark_email_as_read(email_id, read=True): Marks a mail as read, or as unread again.
    add_email_label(email_id, label): Tags a mail or files it into a folder.
    create_email_filter(sender, action='archive'): Sets up a rule for mail from some sender, such as
        blocking spam.
    set_out_of_office(message, until): Turns on the automatic reply while I am on holiday.
    """,
    "music": """
    search_spotify(query, kind='track'): Searches Spotify for songs, artists, albums or podcasts by
        name, mood or lyrics. => {kind}s for '{query}': {Blue Hour|Night Train|Paper Boats} by {Ana
        Vidal|The Lanterns} (trk_{100..999})
    play_track(track_id): Plays a song now.
    play_playlist(playlist_id, shuffle=False): Puts on a playlist, in order or shuffled.
    pause_playback(): Pauses the music. Use this to make it quiet or stop the song. => Paused
    resume_playback(): Goes on playing where the music was stopped. => Playing again
    skip_to_next_track(): Skips this song and plays the next one. => Now playing: {Blue Hour|Night
        Train} by The Lanterns
    skip_to_previous_track(): Goes back to the song before. => Now playing: Paper Boats by Ana Vidal
    get_current_track(): What song is this? Names the title and artist that are playing. => Playing:
        Slow Rivers by Mara Holt, 1:42 of 3:55
    set_playback_volume(percent: int): Makes the music louder or quieter.
    add_track_to_queue(track_id): Lines a song up to play after this one.
    list_playlists(): Lists my playlists. => {Focus|Deep work}, {Running|Gym}, Sunday morning
    create_playlist(name, description=''): Starts a new, empty playlist.
    add_track_to_playlist(playlist_id, track_id): Puts a song into one of my playlists.
    like_track(track_id): Saves a song I love to my favourites.
    get_music_recommendations(mood, limit=5): Suggests something new to listen to for a mood, a
        party or a workout. => For {mood}: {Blue Hour|Night Train}, {Slow Rivers|Paper Boats}
    """,
    "github": """
    create_github_issue(repo, title, body='', labels: list[str] = []): Opens an issue on GitHub. Use
        this to report a bug or ask for a feature in a repository. => Opened {repo}#{100..999}:
        {title}
    list_github_issues(repo, state='open'): Lists the bugs and feature requests of a repository.
    get_github_issue(repo, number: int): Reads one issue with its comments.
    update_github_issue(repo, number: int, state='open', assignee=''): Closes, reopens or assigns an
        issue.
    comment_on_github_issue(repo, number: int, body): Writes a comment under an issue or pull
        request.
    list_pull_requests(repo, state='open'): Shows which pull requests wait for review or were
        merged.
    create_pull_request(repo, title, head, base='main'): Proposes the changes of a branch to be
        merged.
    get_pull_request_diff(repo, number: int): Shows the lines of code a pull request changes. =>
        {repo}#{number}: {1..12} files changed, +{10..400} -{1..200}
    review_pull_request(repo, number: int, verdict='approve', body=''): Approves a pull request or
        asks for changes.
    merge_pull_request(repo, number: int, method='squash'): Merges a pull request into its base
        branch.
    search_github_code(query, repo=''): Finds where a function or piece of text is used in source
        code. => '{query}' in src/{index|client|main}.py, line {10..400}
    get_file_contents(repo, path, ref='main'): Reads a source file from a repository. => {path} at
        {ref}: {12..400} lines, {MIT|BSD} licence
    create_branch(repo, branch, base='main'): Starts a new branch to work on.
    list_commits(repo, branch='main'): Shows who changed what lately in the code.
    get_workflow_status(repo, branch='main'): Is the build green? Tells whether the CI tests passed
        or failed. => {repo}@{branch}: {passed|failed|still running} after {2..19} minutes
    """,
    "drive": """
    search_files(query): Finds a document, spreadsheet, photo or PDF in my drive by its name or what
        is in it.
    list_folder(path='/'): Shows the files and folders in a folder of my drive. => {path}: {Tax
        2024.pdf|Budget.xlsx}, {Photos|Contracts}, and {2..9} more
    read_file(file_id): Opens a document and returns its text. => {file_id}: {Minutes of the
        offsite|Draft contract|Packing list}, {1..9} pages
    upload_file(name, content, folder='/'): Saves text as a new file in my cloud storage.
    download_file(file_id): Gets a link to download a file.
    move_file(file_id, folder): Puts a file into another folder.
    rename_file(file_id, name): Gives a file another name.
    copy_file(file_id, folder): Makes a duplicate of a file.
    delete_file(file_id): Throws a document away.
    create_folder(name, parent='/'): Makes a new folder to keep documents in.
    share_file(file_id, person, role='reader'): Gives somebody access to a document, to read or to
        edit it.
    get_storage_quota(): How much space is left in my drive? => {3..14} GB of 15 GB used
    """,
    "maps": """
    get_directions(origin, destination, mode='driving'): How do I get there? Gives the way from one
        place to another by car, on foot, by bike or by bus. => {origin} to {destination} by {mode}:
        {2..60} km, {8..95} minutes
    get_travel_time(origin, destination, mode='driving'): How long it takes to get somewhere, and
        when to leave. => {8..95} minutes from {origin} to {destination} ({mode})
    search_places(query, near=''): Finds restaurants, cafes, pharmacies, petrol stations or anything
        else nearby. => {Cafe Lumen|Green Door|Old Mill}, {200..900} m; {Corner House|La Piazza},
        {1..4} km
    get_place_details(place_id): Opening hours, phone number, rating and address of a place. Is it
        still open? => {place_id}: open until {18..23}:00, rated {3..4}.{0..9}
    list_place_reviews(place_id): What people say about a restaurant or shop.
    geocode_address(address): Turns an address into latitude and longitude. => {address}:
        {40..58}.{1000..9999}, {2..24}.{1000..9999}
    reverse_geocode(latitude: float, longitude: float): Which street and town lie at some
        coordinates. => {1..90} {Mill Lane|Station Road|Harbour Street}
    get_traffic(road): Are there jams, road works or accidents on the way? => {road}:
        {clear|slow|jammed}, {0..40} minutes of delay
    find_parking(near): Finds a free place to leave the car. => {Station|Market|Riverside} garage
        near {near}, {4..90} places free
    get_transit_departures(stop): When the next bus, tram or train leaves from a stop. => {stop}:
        line {1..30} in {1..6} minutes, line {31..60} in {7..15} minutes
    save_place(place_id, label='favourite'): Remembers a place, such as home, work or a favourite.
    """,
    "travel": """
    search_flights(origin, destination, date, passengers=1): Finds plane tickets and what they cost.
        Use this to fly somewhere cheaply. => {origin} to {destination}, {date}:
        {KL|BA|AF}{100..999} {6..21}:40, {70..480} EUR
    book_flight(flight_id, passenger): Buys a plane ticket and reserves the seat. => Seat
        {2..31}{A|C|F} on {flight_id} booked for {passenger}
    cancel_flight(booking_id): Cancels a flight I have booked and asks for the money back.
    get_flight_status(flight_number): Is the plane on time or delayed, and which gate does it leave
        from? => {flight_number}: {on time|delayed by 35 minutes|boarding}, gate {A|B|C}{1..40}
    check_in_online(booking_id): Checks in for a flight and gets the boarding pass.
    search_hotels(city, check_in, check_out, guests=2): Finds a room or a place to stay the night.
        => {city}: {Harbour Inn|Hotel Astra}, {60..240} EUR a night, rated {7..9}.{0..9}
    book_hotel(hotel_id, check_in, check_out): Reserves a room in a hotel. => {hotel_id} booked from
        {check_in} to {check_out}
    cancel_hotel_booking(booking_id): Gives up a hotel room I have reserved.
    search_trains(origin, destination, date): Finds railway connections between two cities. =>
        {origin} to {destination}, {date}: {6..21}:{10..59}, {0..2} changes, {15..120} EUR
    rent_car(city, pick_up, drop_off): Hires a car at the airport or in town.
    list_bookings(): All the trips, flights and hotels I have booked.
    get_visa_requirements(nationality, country): Tells whether I need a visa or only my passport to
        enter a country. => {country}: {no visa needed|visa on arrival|visa needed} ({nationality})
    """,
    "shop": """
    search_products(query, max_price: float = 0.0): Looks for things to buy and compares prices. =>
        '{query}': {2..9} articles from {5..40}.{10..99} EUR
    get_product(product_id): Price, size, colour and stock of an article. Can I still get it? =>
        {product_id}: {9..240}.{10..99} EUR, {in stock|sold out|2 left}
    list_product_reviews(product_id): What buyers think of a product.
    add_to_cart(product_id, quantity=1): Puts an article into my shopping basket.
    remove_from_cart(product_id): Takes something out of the basket again.
    get_cart(): What is in my shopping basket, and what it comes to. => {2..6} articles,
        {9..240}.{10..99} EUR
    place_order(address, payment='card'): Checks out and buys everything in the basket. => Order
        ord_{1000..9999} placed, to {address}, paid by {payment}
    track_order(order_id): Where is my parcel? Tells when a delivery arrives. => {order_id}:
        {packed|on its way|out for delivery}, due {Monday|Wednesday|Friday}
    list_orders(): What I have bought before.
    cancel_order(order_id): Calls off a purchase before it is shipped.
    return_product(order_id, product_id, reason=''): Sends an article back and asks for a refund.
    add_to_wishlist(product_id): Keeps an article in mind to buy later.
    """,
    "bank": """
    get_account_balance(account='checking'): How much money do I have? Tells the balance of an
        account. => {account}: {120..9800}.{10..99} EUR
    list_accounts(): Lists my checking, savings and card accounts.
    list_transactions(account='checking', since=''): What I have spent and received lately.
    search_transactions(query): Finds a payment by shop, person or amount.
    transfer_money(recipient, amount: float, reference=''): Sends money to somebody, pays a friend
        back or pays the rent. => Sent {amount} EUR to {recipient}
    create_standing_order(recipient, amount: float, interval='monthly'): Pays somebody the same sum
        every month.
    cancel_standing_order(order_id): Ends a repeated payment.
    pay_bill(biller, amount: float): Pays an invoice, such as electricity, phone or insurance.
    get_exchange_rate(from_currency, to_currency): What a currency is worth today, for instance
        dollars in euros. => 1 {from_currency} = {0..3}.{1000..9999} {to_currency}
    convert_currency(amount: float, from_currency, to_currency): Works out a sum of money in another
        currency. => {amount} {from_currency} = {10..900}.{10..99} {to_currency}
    get_spending_summary(month): Where did my money go? Sums spending by food, rent, travel and so
        on. => {month}: food {180..420} EUR, travel {40..300} EUR, rent {700..1200} EUR
    freeze_card(card_id): Blocks a lost or stolen credit card.
    """,
    "home": """
    turn_on_light(room, brightness=100): Switches the lights on in a room. Use this when it is too
        dark. => Light in {room} on at {brightness} %
    turn_off_light(room): Switches the lights off in a room. => Light in {room} off
    set_light_color(room, color): Makes the lamps red, blue, warm white or any other colour.
    set_thermostat(room, celsius: float): Makes a room warmer or colder by turning the heating up or
        down.
    get_room_temperature(room): How warm it is inside, in a room of the house. => {room}:
        {17..25}.{0..9} C
    lock_door(door='front'): Locks a door of the house. => {door} door locked
    unlock_door(door='front'): Opens the lock to let somebody in. => {door} door unlocked
    get_door_status(door='front'): Did I lock up? Tells whether a door is open, shut or locked. =>
        {door} door: {locked|shut, not locked|open}
    open_blinds(room): Raises the blinds to let the daylight in.
    close_blinds(room): Lowers the blinds or shutters.
    start_vacuum(room='all'): Sends the robot to clean the floor.
    show_camera(camera): Who is at the door? Says what a security camera sees. => {camera}: {nobody
        in sight|a parcel by the door|the neighbour's cat}
    activate_scene(scene): Sets many devices at once, as for movie night, bedtime or leaving home.
    """,
    "notes": """
    create_note(title, text=''): Writes something down so that I do not forget it.
    search_notes(query): Finds what I wrote down about something.
    get_note(note_id): Opens one of my notes.
    update_note(note_id, text): Changes or adds to a note.
    delete_note(note_id): Throws a note away.
    create_task(title, due='', project='inbox'): Puts something on my to-do list. => Task '{title}'
        (tsk_{100..999}) added to {project}
    list_tasks(project='', due='today'): What do I still have to do? Lists my open to-dos. => {Call
        the plumber|Renew passport}, {Buy milk|Send slides}
    complete_task(task_id): Ticks a to-do off as done.
    update_task(task_id, title='', due=''): Changes a to-do or puts it off to another day.
    delete_task(task_id): Drops a to-do I no longer need.
    create_reminder(text, time): Reminds me of something at some time, such as to call mum at six.
        => Will remind you at {time}: {text}
    set_timer(minutes: int): Rings when some minutes are over, for eggs or a nap. => Timer set,
        {minutes} minutes
    """,
    "chat": """
    send_channel_message(channel, text): Posts a message to a team channel for everybody to see. =>
        Posted to {channel}: {text}
    send_direct_message(person, text): Pings a colleague privately in the chat. => Sent to {person}:
        {text}
    list_channels(): Lists the channels of the team chat. => #general, #random,
        #{design|support|releases}
    get_channel_history(channel, limit=20): What has been said in a channel? Catches me up on a
        conversation. => {channel}: {the release is out|who has the slides?|lunch at noon}, {2..9}
        more
    search_messages(query): Finds something somebody wrote in the chat.
    reply_in_thread(message_id, text): Answers a chat message beneath it.
    add_reaction(message_id, emoji): Reacts to a message with a thumbs up, a heart or another emoji.
    create_channel(name, private=False): Opens a new room for a team or topic.
    invite_to_channel(channel, person): Adds a colleague to a channel.
    set_status(text, emoji=''): Shows others that I am away, at lunch or busy.
    get_user_presence(person): Is a colleague online right now? => {person} is {online|away|offline}
    """,
}

# What a tool replies when its row does not say, by the first word of its name.
REPLIES = {
    "get": "Found {thing}, {unchanged|changed today|changed last week}",
    "list": "{2..9} {thing}",
    "search": "{2..9} {thing}, best first",
    "create": "Created {thing}, number {100..999}",
    "update": "Updated {thing}",
    "delete": "Deleted {thing}",
}
TYPES = {"int": int, "float": float, "bool": bool, "list[str]": list[str]}
ROW = re.compile(r"(\w+)\((.*?)\): (.*?)(?: => (.*))?")
PARAMETER = re.compile(r"(\w+)(?:: ([^=]+?))?(?: ?= ?(.+))?")
BLANK = re.compile(r"\{(.+?)\}")


def _read(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    """Return the groups of a pattern that has to fit the whole text; '' for one left out."""
    if match := pattern.fullmatch(text):
        return match.groups("")
    raise ValueError(f"cannot read {text!r}: want 'name(parameter: type = default): purpose'")


def _fields(signature: str) -> dict[str, Any]:
    """Read `city, days=3` as pydantic fields; without a type or default it is a required string."""
    fields: dict[str, Any] = {}
    for parameter in filter(None, signature.split(", ")):
        name, kind, default = _read(PARAMETER, parameter)
        value = literal_eval(default) if default else ...
        fields[name] = (TYPES[kind] if kind else str if value is ... else type(value), value)
    return fields


def _draw(seed: str, size: int) -> int:
    """Draw a number from 0 to `size - 1`, the same for the same seed whatever its case."""
    return int(hashlib.sha256(seed.casefold().encode()).hexdigest(), 16) % size


def _fill(reply: str, seed: str, values: dict[str, str]) -> str:
    """Fill each blank of a reply with the value of that name, or else a number or choice."""

    def fill(blank: re.Match[str]) -> str:
        text, draw = blank[1], f"{seed} {blank.start()}"
        if text in values:
            return values[text]
        if ".." in text:
            low, high = map(int, text.split(".."))
            return str(low + _draw(draw, high - low + 1))
        choices = text.split("|")
        return choices[_draw(draw, len(choices))]

    return BLANK.sub(fill, reply)


def _answer(name: str, reply: str, arguments: dict[str, object]) -> str:
    """Reply to a call as its row says, or else as its family of tools does."""
    values = {
        key: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for key, value in arguments.items()
    }
    given = ", ".join(f"{key}={value}" for key, value in values.items() if value)
    verb, *rest = name.split("_")
    family = REPLIES.get(verb)
    thing = " ".join(rest if family else [verb, *rest]) + (f" ({given})" if given else "")
    return _fill(reply or family or "Done: {thing}", f"{name} {given}", {"thing": thing, **values})


def _tool(server: str, row: str) -> BaseTool:
    """Build the tool that a row of the table describes."""
    name, signature, purpose, reply = _read(ROW, " ".join(row.split()))

    def run(**arguments: object) -> str:
        return _answer(name, reply, arguments)

    async def arun(**arguments: object) -> str:
        return _answer(name, reply, arguments)

    return StructuredTool(
        name=name,
        description=purpose,
        args_schema=create_model(name, **_fields(signature)),
        func=run,
        coroutine=arun,
        metadata={"server": server},
    )


TOOLS: list[BaseTool] = [
    _tool(server, row)
    for server, table in SERVICES.items()
    for row in re.split(r"\n(?=\w)", dedent(table).strip())
]
