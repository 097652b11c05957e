"""A large OpenAPI document, as public services have them: services x resources x verbs."""

from itertools import islice, product

SERVICES = {
    "billing": ("invoice", "credit_note", "subscription", "plan", "coupon", "tax_rate", "payout"),
    "identity": ("user", "group", "role", "session", "api_key", "invitation", "policy"),
    "storage": ("bucket", "object", "folder", "share_link", "snapshot", "quota", "lifecycle_rule"),
    "messaging": ("channel", "message", "template", "campaign", "webhook", "contact", "segment"),
    "support": ("ticket", "macro", "article", "queue", "survey", "agent", "escalation"),
    "projects": ("issue", "milestone", "board", "label", "comment", "release", "workflow"),
    "commerce": ("product", "order", "cart", "shipment", "return", "supplier", "discount"),
    "network": ("domain", "certificate", "firewall_rule", "load_balancer", "subnet", "peering"),
    "compute": ("instance", "image", "volume", "cluster", "job", "function", "queue_worker"),
    "analytics": ("report", "dashboard", "event", "funnel", "cohort", "metric", "export"),
    "people": ("employee", "candidate", "absence", "payslip", "department", "contract", "review"),
    "travel": ("booking", "itinerary", "traveller", "hotel", "flight", "expense", "approval"),
}
VERBS = ("list", "create", "get", "update", "replace", "delete", "archive", "search")
PAGE = ({"$ref": "#/components/parameters/Limit"}, {"$ref": "#/components/parameters/Cursor"})
FAILURE = {"default": {"$ref": "#/components/responses/Failure"}}


def document(operations=500):
    """An OpenAPI 3.0 document of so many operations, 664 at most.

    Args:
        operations: How many operations it has.

    Returns:
        The document: nested bodies over shared references, and a cycle (a folder in a folder).
    """
    resources = [(service, name) for service, names in SERVICES.items() for name in names]
    wanted = list(islice(product(resources, VERBS), operations))
    if len(wanted) < operations:
        raise ValueError(f"there are {len(wanted)} operations, not {operations}")
    paths = {}
    for (service, resource), verb in wanted:
        path, method, operation = _operation(service, resource, verb)
        paths.setdefault(path, {})[method] = operation
    schemas = {_title(name): _resource(service, name) for service, name in resources}
    return {
        "openapi": "3.0.3",
        "info": {"title": "Everything Cloud", "version": "2026-11-01"},
        "servers": [{"url": "https://api.everything.example/v1"}],
        "tags": [{"name": service} for service in SERVICES],
        "paths": paths,
        "components": {**_shared(), "schemas": {**_shared_schemas(), **schemas}},
        "security": [{"token": []}],
    }


def _title(name):
    return "".join(word.capitalize() for word in name.split("_"))


def _operation(service, resource, verb):
    words = resource.replace("_", " ")
    plural = f"/{service}/{resource}s"
    one = f"{plural}/{{{resource}_id}}"
    schema = {"$ref": f"#/components/schemas/{_title(resource)}"}
    path, method, summary, extra = {
        "list": (plural, "get", f"List {words}s", {"parameters": list(PAGE)}),
        "create": (plural, "post", f"Create one {words}", _body(schema)),
        "get": (one, "get", f"Get one {words}", {}),
        "update": (one, "patch", f"Change fields of one {words}", _body(schema)),
        "replace": (one, "put", f"Replace one {words}", _body(schema)),
        "delete": (one, "delete", f"Delete one {words}", {}),
        "archive": (f"{one}/archive", "post", f"Archive one {words}", {}),
        "search": (f"{plural}/search", "post", f"Search {words}s", _body(_search(schema))),
    }[verb]
    parameters = [_id(resource)] if path.startswith(one) else []
    return (
        path,
        method,
        {
            "operationId": f"{service}/{verb}_{resource}",
            "summary": summary,
            "description": f"{summary} of the {service} service.",
            "tags": [service],
            "responses": FAILURE,
            **extra,
            "parameters": [*parameters, *extra.get("parameters", ())],
        },
    )


def _id(resource):
    return {
        "name": f"{resource}_id",
        "in": "path",
        "required": True,
        "description": f"Which {resource.replace('_', ' ')}.",
        "schema": {"type": "string", "format": "uuid"},
    }


def _body(schema):
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _search(schema):
    return {
        "type": "object",
        "required": ["query"],
        "properties": {
            "query": {"type": "string", "example": "unpaid since May"},
            "like": {"allOf": [schema], "nullable": True},
            "filter": {"$ref": "#/components/schemas/Filter"},
        },
    }


def _resource(service, resource):
    """Every resource has what all have, an owner, money, and a place in the tree of folders."""
    return {
        "allOf": [
            {"$ref": "#/components/schemas/Base"},
            {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "description": f"Name of the {resource}."},
                    f"{resource}_kind": {"type": "string", "enum": ["standard", service, "trial"]},
                    "owner": {"$ref": "#/components/schemas/Person"},
                    "amount": {"$ref": "#/components/schemas/Money"},
                    "folder": {"$ref": "#/components/schemas/Tree"},
                },
            },
        ]
    }


def _shared():
    return {
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        "parameters": {
            "Limit": {
                "name": "limit",
                "in": "query",
                "schema": {
                    "type": "integer",
                    "minimum": 0,
                    "exclusiveMinimum": True,
                    "maximum": 100,
                },
            },
            "Cursor": {"name": "cursor", "in": "query", "schema": {"type": "string"}},
        },
        "responses": {"Failure": {"description": "What went wrong."}},
    }


def _shared_schemas():
    return {
        "Base": {
            "type": "object",
            "properties": {
                "id": {"type": "string", "format": "uuid", "readOnly": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "note": {"type": "string", "nullable": True},
            },
        },
        "Person": {
            "type": "object",
            "properties": {
                "email": {"type": "string", "format": "email"},
                "address": {"$ref": "#/components/schemas/Address"},
            },
        },
        "Address": {
            "type": "object",
            "properties": {
                "street": {"type": "string"},
                "country": {"type": "string", "description": "Two letters, ISO 3166."},
            },
        },
        "Money": {
            "type": "object",
            "required": ["currency", "cents"],
            "properties": {
                "currency": {"type": "string", "enum": ["EUR", "USD", "JPY"]},
                "cents": {"type": "integer"},
            },
        },
        "Tree": {
            "type": "object",
            "description": "A folder.",
            "properties": {
                "title": {"type": "string"},
                "parent": {"$ref": "#/components/schemas/Tree"},
                "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
            },
        },
        "Filter": {
            "type": "object",
            "properties": {
                "field": {"type": "string"},
                "any": {"type": "array", "items": {"$ref": "#/components/schemas/Filter"}},
            },
        },
    }
