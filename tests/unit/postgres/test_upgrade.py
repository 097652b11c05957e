import threading

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.postgres import upgrade as module
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.upgrade import migrations, refuse_old, required_version, upgrade

ALL = [migration.number for migration in migrations()]


def applied(dsn):
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("select number from toolrag.migrations order by number")
        return [number for (number,) in rows]


def pretend(dsn, sql):
    with psycopg.connect(dsn) as connection:
        connection.execute(sql)


def test_migrations_are_numbered_without_gaps():
    assert list(range(1, required_version() + 1)) == ALL


def test_an_upgrade_applies_every_migration_and_a_second_one_none(empty_database):
    assert upgrade(empty_database) == ALL
    assert upgrade(empty_database) == []
    assert applied(empty_database) == ALL
    refuse_old(Database(empty_database))


def test_upgrades_at_once_apply_every_migration_once(empty_database):
    barrier, done = threading.Barrier(4), []

    def run():
        barrier.wait()
        done.append(upgrade(empty_database, roles=True))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [[], [], [], ALL]
    assert applied(empty_database) == ALL


def test_a_migration_that_fails_leaves_nothing_behind(empty_database, monkeypatch):
    broken = module.Migration(required_version() + 1, "broken", "create table toolrag.x(); oops")
    known = migrations()
    monkeypatch.setattr(module, "migrations", lambda: (*known, broken))
    with pytest.raises(DatabaseError, match="syntax error"):
        upgrade(empty_database)
    with psycopg.connect(empty_database) as connection:
        row = connection.execute("select to_regnamespace('toolrag') is null").fetchone()
    assert row == (True,)


def test_a_database_of_a_newer_version_is_refused(dsn):
    pretend(dsn, "insert into toolrag.migrations (number, name) values (999, 'future')")
    for attempt in (upgrade, lambda dsn: refuse_old(Database(dsn))):
        with pytest.raises(DatabaseError, match=r"version 999, .* upgrade langchain-toolrag"):
            attempt(dsn)


def test_a_database_of_an_older_version_is_refused_and_the_command_named(dsn):
    pretend(dsn, f"delete from toolrag.migrations where number = {required_version()}")
    with pytest.raises(DatabaseError, match="run `toolrag db upgrade --database DSN`"):
        refuse_old(Database(dsn))


def test_a_database_without_tables_is_refused_and_the_command_named(empty_database):
    with pytest.raises(DatabaseError, match=r"is not set up .* run `toolrag db upgrade"):
        refuse_old(Database(empty_database))


def test_the_extension_alone_does_not_make_the_tables(empty_database):
    pretend(empty_database, "create extension vector")
    with pytest.raises(DatabaseError, match="tables of version none"):
        refuse_old(Database(empty_database))
    assert upgrade(empty_database) == ALL


def test_whoever_may_not_make_tables_is_told(empty_database):
    pretend(
        empty_database,
        "do $$ begin create role nobody_much login;"
        " exception when duplicate_object then null; end $$",
    )
    with pytest.raises(DatabaseError, match="permission denied for database"):
        upgrade(make_conninfo(empty_database, user="nobody_much"))
