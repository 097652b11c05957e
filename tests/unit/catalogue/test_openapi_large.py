import json
import time

import pytest
from jsonschema import Draft202012Validator
from large_openapi import document

from langchain_toolrag.catalogue.names import bound_name, is_bound_name
from langchain_toolrag.catalogue.sources.openapi.arguments import MOST_CHARACTERS
from langchain_toolrag.catalogue.sources.openapi.listing import read_openapi

SECONDS = 20.0  # It takes one; the machine of a test may have other things to do.


@pytest.fixture(scope="module")
def listing(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "cloud.json"
    path.write_text(json.dumps(document(600)))
    began = time.perf_counter()
    listing = read_openapi(path)
    assert time.perf_counter() - began < SECONDS
    return listing


def test_every_operation_of_a_large_document_comes_out_under_an_id_of_its_own(listing):
    assert len(listing.tools) == listing.source.tools == 600
    assert len({tool.id for tool in listing.tools}) == 600
    assert listing.tools[0].id == "cloud/billing/list_invoice"


def test_every_tool_of_a_large_document_can_be_bound(listing):
    names = [bound_name(tool.id) for tool in listing.tools]
    assert len(set(names)) == 600
    assert all(map(is_bound_name, names))


def test_every_schema_of_a_large_document_stands_alone_and_is_small(listing):
    for tool in listing.tools:
        Draft202012Validator.check_schema(tool.parameters)
        text = json.dumps(tool.parameters)
        assert "$ref" not in text
        assert len(text) <= MOST_CHARACTERS


def test_what_goes_into_the_path_is_asked_for(listing):
    (tool,) = (tool for tool in listing.tools if tool.name == "support/update_ticket")
    assert tool.call["path"] == "/support/tickets/{ticket_id}"
    assert tool.parameters["required"] == ["ticket_id", "name"]
    assert "id" not in tool.parameters["properties"]


def test_a_document_of_no_more_operations_than_there_are_is_made():
    with pytest.raises(ValueError, match="there are 664 operations, not 1000"):
        document(1000)
