import traceback

import pytest

from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.postgres.dsn import parameters_of, shown


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:s3cret@db.example/tools",
        "host=db.example dbname=tools user=me password=s3cret",
        "postgresql://me@db.example/tools?password=s3cret",
    ],
)
def test_what_is_shown_says_where_and_as_whom_and_not_the_password(dsn):
    parameters = parameters_of(dsn, 5)
    assert parameters["password"] == "s3cret"
    assert shown(parameters) == "host=db.example dbname=tools user=me"


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:s3cr%et@db/tools",
        "password='s3cret",
        "s3cret",
        "http://s3cret@db/",
        "host=db password=my s3cret=1",
        "postgresql://me:s@3cr@db/tools",
        "postgres://me:@s3cr@db/tools",
        "postgresql://me:s3cr/et@db/tools",
        "postgresql://me:5432/s3cr@db/tools",
        "host=s3cr\0et",
        "password=s3cr\udc80",
        "host=s3cr..et",
    ],
)
def test_a_dsn_that_cannot_be_read_is_not_quoted(dsn):
    with pytest.raises(DatabaseError, match="its DSN cannot be read; wanted postgresql://") as info:
        parameters_of(dsn, 5)
    assert "3cr" not in "".join(traceback.format_exception(info.value))
    assert info.value.__context__ is None


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:p%40ss%2F@db/to%40ols?options=-c%20a%3D@",
        "postgresql://%40abstract/tools",
        "postgresql:///tools?host=/tmp&password=@/",
        "postgresql://a,b:1/tools",
        "password=p@s/s host=@abstract,/tmp,bücher.example",
        "",
    ],
)
def test_a_dsn_with_odd_characters_in_their_places_is_read(dsn):
    assert parameters_of(dsn, 5)["client_encoding"] == "utf8"


def test_what_is_said_elsewhere_is_named_as_far_as_the_dsn_names_it():
    assert shown(parameters_of("service=tools passfile=/run/s3cret", 5)) == "service=tools"
    assert shown(parameters_of("", 5)) == "that of the environment"


def test_what_the_dsn_says_of_time_counts():
    assert parameters_of("host=db", 7.2)["connect_timeout"] == 8
    assert parameters_of("host=db connect_timeout=3", 7.2)["connect_timeout"] == "3"
