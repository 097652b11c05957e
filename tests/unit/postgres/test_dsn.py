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
    "dsn", ["postgresql://me:s3cr%et@db/tools", "password='s3cret", "s3cret", "http://s3cret@db/"]
)
def test_a_dsn_that_cannot_be_read_is_not_quoted(dsn):
    with pytest.raises(DatabaseError, match="its DSN cannot be read; wanted postgresql://") as info:
        parameters_of(dsn, 5)
    assert "s3cr" not in "".join(traceback.format_exception(info.value))


def test_what_the_dsn_says_of_time_counts():
    assert parameters_of("host=db", 7.2)["connect_timeout"] == 8
    assert parameters_of("host=db connect_timeout=3", 7.2)["connect_timeout"] == "3"
