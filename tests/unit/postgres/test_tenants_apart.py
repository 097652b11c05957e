"""What users with the roles of `toolrag db upgrade --roles` can see and change of other tenants."""

import psycopg
import pytest
from documents import make_document
from fakes import NamedEmbeddings
from postgres_server import make_user
from psycopg import errors

from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.known_vectors import PostgresVectors
from langchain_toolrag.postgres.remote import RemoteSearch
from langchain_toolrag.postgres.tool_store import ToolTable
from langchain_toolrag.postgres.upgrade import upgrade

ROLES = ["reader", "writer"]
OURS = """O'Neil "& Söhne" \\ %s {} 天気"""  # A tenant's name may be anything.
THEIRS = "globex"
FUNCTIONS = {
    "by_words": """select distinct id from toolrag.by_words(
        '{rain}', '''rain''', '{theirs,ours}', null, null, null, null, 9, 9)
        where id is not null""",
    "by_words of ids": """select distinct id from toolrag.by_words(
        '{rain}', '''rain''', '{theirs,ours}', null, null, '{theirs,ours}', null, 9, 9)
        where id is not null""",
    "by_meaning": """select m.id from toolrag.tool_vectors as v
        cross join lateral
        toolrag.by_meaning(v.vector, v.space, null, null, null, null, 9) as m (id)
        group by m.id""",
    "by_meaning of ids": """select m.id from toolrag.tool_vectors as v cross join lateral
        toolrag.by_meaning(v.vector, v.space, null, null, '{theirs,ours}', null, 9) as m (id)
        group by m.id""",
}
TABLES = ["catalogues", "tools", "removed", "vectors", "tool_vectors", "word_counts", "spreads"]


@pytest.fixture(scope="module")
def stocked(postgres_server):
    """A database of two tenants, one tool each."""
    dsn = postgres_server.make_database()
    upgrade(dsn, roles=True)
    for tenant, name in ((OURS, "ours"), (THEIRS, "theirs")):
        database = Database(dsn, tenant)
        tools = [make_document(name, f"Says rain, {name} alone."), make_document("x")]
        ToolTable(database).refresh(tools)
        ToolTable(database).remove(["x"])
        vectors = PostgresVectors(database, "hashing-1")
        embedder = Embedder(NamedEmbeddings(), cache=vectors)
        RemoteSearch(database, embedder, IndexOptions()).evidence("rain")
        vectors.close()
        database.close()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture(params=ROLES)
def ours(request, stocked):
    """A tenant's database, as a user of one role."""
    role = request.param
    database = Database(make_user(stocked, f"one_{role}", f"toolrag_{role}"), OURS)
    yield database
    database.close()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_a_search_give_a_tenants_own_tools(ours, function):
    with ours.read() as connection:
        assert connection.execute(FUNCTIONS[function]).fetchall() == [("ours",)]


def test_how_rare_words_are_is_told_of_a_tenants_own_tools(ours):
    asked = "select word, tools, size from toolrag.rarities('{rain,their,our}') order by word"
    with ours.read() as connection:
        assert connection.execute(asked).fetchall() == [
            ("our", 1, 1),
            ("rain", 1, 1),
            ("their", 0, 1),
        ]
        (ranked,) = connection.execute("select toolrag.worth_ranking('{their}', 9)").fetchone()
        assert ranked is None


@pytest.mark.parametrize("function", FUNCTIONS)
def test_whoever_names_no_tenant_is_given_nothing(ours, function):
    for unset in ("select set_config('toolrag.tenant', '', true)", "reset toolrag.tenant"):
        with ours.read() as connection:
            connection.execute(unset)
            assert connection.execute(FUNCTIONS[function]).fetchall() == []


@pytest.mark.parametrize("table", TABLES)
def test_rows_of_another_tenant_are_neither_seen_nor_counted(ours, table):
    with ours.read() as connection:
        tenants = {
            tenant for (tenant,) in connection.execute(f"select tenant from toolrag.{table}")
        }
        assert tenants <= {OURS}


@pytest.mark.parametrize("table", TABLES)
def test_rows_of_another_tenant_cannot_be_changed_or_removed(stocked, table):
    database = Database(make_user(stocked, "one_writer", "toolrag_writer"), OURS)
    with psycopg.connect(stocked) as owner:
        counted = f"select count(*) from toolrag.{table} where tenant = %s"
        before = owner.execute(counted, [THEIRS]).fetchone()
        for does in (f"update toolrag.{table} set tenant = tenant", f"delete from toolrag.{table}"):
            with database.write() as connection:
                changed = connection.execute(f"{does} where tenant = %s", [THEIRS])
                assert changed.rowcount == 0
        assert owner.execute(counted, [THEIRS]).fetchone() == before
    database.close()


@pytest.mark.parametrize("table", TABLES)
def test_a_reader_changes_nothing_of_its_own_tenant_either(stocked, table):
    database = Database(make_user(stocked, "one_reader", "toolrag_reader"), OURS)
    for does in (f"update toolrag.{table} set tenant = tenant", f"delete from toolrag.{table}"):
        with (
            pytest.raises(DatabaseError, match="permission denied"),
            database.write() as connection,
        ):
            connection.execute(does)
    database.close()


def test_no_row_can_be_written_as_another_tenants(stocked):
    database = Database(make_user(stocked, "one_writer", "toolrag_writer"), OURS)
    refused = r"row-level security|permission denied"
    statements = [
        "insert into toolrag.tool_vectors values ('globex', 'space', 'theirs', '[1,2]')",
        "insert into toolrag.word_counts values ('globex', 'rain', 9, 9, 9)",
        "insert into toolrag.spreads (tenant, space) values ('globex', 'space')",
        "update toolrag.tools set tenant = 'globex'",
        "update toolrag.tool_vectors set tenant = 'globex'",
        "truncate toolrag.tools cascade",
    ]
    for statement in statements:
        with pytest.raises(DatabaseError, match=refused), database.write() as connection:
            connection.execute(statement)
    database.close()


def test_the_role_that_sees_all_tenants_is_nobodys(ours):
    for statement in ("set role toolrag_search", "grant toolrag_search to current_user"):
        with pytest.raises(DatabaseError, match="permission denied"), ours.write() as connection:
            connection.execute(statement)
    with ours.read() as connection:
        members = "select count(*) from pg_auth_members where roleid = 'toolrag_search'::regrole"
        assert connection.execute(members).fetchone() == (0,)


def test_functions_that_see_all_tenants_are_not_deceived_by_what_a_caller_puts_before_them(ours):
    """Neither by temporary tables and types, nor by a path to search them on."""
    with ours.write() as connection:
        connection.execute("create temporary table tools as select 'globex' as tenant, 'x' as id")
        connection.execute("create temporary table unnest (a int)")
        connection.execute("create domain pg_temp.halfvec as text")
        connection.execute("set local search_path = pg_temp, toolrag, public")
        assert connection.execute(FUNCTIONS["by_words"]).fetchall() == [("ours",)]
        asked = FUNCTIONS["by_meaning"]
        assert connection.execute(asked).fetchall() == [("ours",)]
        paths = """select proname, prosecdef, proconfig::text from pg_proc
            where pronamespace = 'toolrag'::regnamespace and prosecdef"""
        rows = connection.execute(paths).fetchall()
        assert {name for name, *_ in rows} == {"by_words", "by_meaning"}
        assert all(
            "search_path=pg_catalog" in config and "pg_temp" in config for *_, config in rows
        )


PLANTED = """
    create function public.planted(text[], text[]) returns boolean language plpgsql
        as 'begin raise exception ''planted''; end';
    create function public.planted(bigint, numeric) returns numeric language plpgsql
        as 'begin raise exception ''planted''; end';
    create function public.planted(float8, int) returns float8 language plpgsql
        as 'begin raise exception ''planted''; end';
    create function public.ts_rank(text, tsvector, tsquery) returns real language plpgsql
        as 'begin raise exception ''planted''; end';
    create operator public.&& (leftarg = text[], rightarg = text[], function = public.planted);
    create operator public.@> (leftarg = text[], rightarg = text[], function = public.planted);
    create operator public.- (leftarg = bigint, rightarg = numeric, function = public.planted);
    create operator public.+ (leftarg = float8, rightarg = int, function = public.planted);
"""


def test_functions_that_see_all_tenants_call_nothing_that_lies_beside_the_extension(stocked):
    """Whoever may write to the extension's schema can put operators there that fit better."""
    searches = [
        """select distinct id from toolrag.by_words('{rain}', '''rain''', '{ours}', null, '{}',
            null, null, 9, 9) where id is not null""",
        """select m.id from toolrag.tool_vectors as v cross join lateral
            toolrag.by_meaning(v.vector, v.space, null, '{}', null, null, 9) as m (id)""",
    ]
    with psycopg.connect(stocked) as planting:
        planting.execute(PLANTED)
        planting.execute("select set_config('toolrag.tenant', %s, true)", [OURS])
        with pytest.raises(errors.RaiseException, match="planted"), planting.transaction():
            planting.execute("select '{a}'::text[] && '{b}'::text[]")
        assert [planting.execute(search).fetchall() for search in searches] == [[("ours",)], []]
        planting.rollback()
