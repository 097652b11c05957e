"""One of several processes that read and write one catalogue: `python postgres_traffic.py ...`.

Arguments: DSN, tenant, mode, number of the process, seconds. It adds, changes and removes tools of
its own, and searches; what it saw and left behind is printed as JSON. Run by
tests/integration/test_postgres_faults.py.
"""

import json
import random
import sys
import time

from documents import make_document
from fakes import NamedEmbeddings

from langchain_toolrag.postgres.index import PostgresIndex

_WORDS = ["rain", "snow", "mail", "issue", "song", "lamp", "rate", "meeting", "city", "repository"]


def make_own(tenant, number, name, dice):
    """A tool that says whose it is."""
    text = " ".join(dice.choices(_WORDS, k=6))
    return make_document(f"{name}", f"{text} {tenant} {number}.", f"{tenant}-{number}")


def run(dsn, tenant, mode, number, seconds):
    dice, held, changes = random.Random(number), {}, 0
    searches, foreign, doubled, versions = 0, [], [], []
    with PostgresIndex(dsn, tenant=tenant, embeddings=NamedEmbeddings(), mode=mode) as index:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            turn = dice.random()
            if turn < 0.35:
                new = [make_own(tenant, number, f"tool_{dice.randrange(30)}", dice)]
                done = index.add(new)
                changes += bool(done.added or done.changed)
                held.update((document.id, document.description) for document in new)
            elif turn < 0.5 and held:
                gone = dice.sample(sorted(held), min(2, len(held)))
                changes += bool(index.remove(gone).removed)
                held = {each: text for each, text in held.items() if each not in gone}
            else:
                found = index.evidence(" ".join(dice.choices(_WORDS, k=3)), 10)
                searches += 1
                versions.append(found.version)
                ids = [each.id for each in found.tools]
                foreign += [each for each in ids if not each.startswith(tenant)]
                doubled += [each for each in set(ids) if ids.count(each) > 1]
        own = [each for each in index.documents if each.server == f"{tenant}-{number}"]
    grew = versions == sorted(versions)
    return {
        "held": held,
        "found": {each.id: each.description for each in own},
        "changes": changes,
        "searches": searches,
        "foreign": foreign,
        "doubled": doubled,
        "grew": grew,
    }


if __name__ == "__main__":
    _, dsn, tenant, mode, number, seconds = sys.argv
    sys.stdout.write(json.dumps(run(dsn, tenant, mode, int(number), float(seconds))))
