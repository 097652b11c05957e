"""The deployment examples: what cannot be run here is at least valid, and fits the commands."""

import json
import os
import re
import subprocess
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import jsonschema
import kubernetes_validate
import pytest
import yaml
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from langchain_toolrag import cli
from langchain_toolrag.cli.stores import database_of
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.server.rest import rest_routes
from langchain_toolrag.server.security import OPEN_PATHS, Guard

ROOT = Path(__file__).parents[2]
PACKAGE = Path(cli.__file__).parents[1]
DEPLOY = ROOT / "examples" / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
OBJECTS = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
BY_KIND = {each["kind"]: each for each in OBJECTS}
PODS = {kind: BY_KIND[kind]["spec"]["template"] for kind in ("Job", "Deployment")}
CONTAINERS = {kind: pod["spec"]["containers"][0] for kind, pod in PODS.items()}
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
NGINX = (DEPLOY / "nginx.conf").read_text()
OURS = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
IMAGE = f"langchain-toolrag:{OURS}"
PROBES = {
    name: CONTAINERS["Deployment"][name] for name in CONTAINERS["Deployment"] if "Probe" in name
}
PATHS = {
    **{name: probe["httpGet"]["path"] for name, probe in PROBES.items()},
    "compose server": re.search(r"8765(/\w+)", str(SERVICES["server-1"]["healthcheck"]))[1],
    "compose balancer": urlsplit(SERVICES["balancer"]["healthcheck"]["test"][-1]).path,
}
KEY = "a-key"

COMMANDS = {
    **{
        f"compose {name}": [str(each) for each in service["command"]]
        for name, service in SERVICES.items()
        if service["image"] == IMAGE
    },
    **{f"kubernetes {kind}": each["args"] for kind, each in CONTAINERS.items()},
}


def parsed(command, monkeypatch):
    monkeypatch.setenv("TOOLRAG_DATABASE", "postgresql://somebody@somewhere/toolrag")
    return cli._parser().parse_args(command)


def leaves(value, path=()):
    """Every text of a document with where it is."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from leaves(each, (*path, number))
    else:
        yield path, str(value)


SECRET = re.compile(r"password|passwd|token|api_?key|secret|dsn|database$", re.IGNORECASE)


def secrets_in(document):
    """Where a document has a secret itself, rather than say where it is."""
    found = [path for path, text in leaves(document) if "://" in text and urlsplit(text).password]
    for variables in environments(document):
        for name, value in variables.items():
            is_file = name.endswith("_FILE") and value.startswith("/run/secrets/")
            is_reference = isinstance(value, dict) and "secretKeyRef" in value
            is_dsn = isinstance(value, str) and value.startswith("postgresql://")
            if SECRET.search(name) and not (is_file or is_reference or is_dsn):
                found.append((name,))
    return found


def environments(document):
    """The environment variables of a document's containers."""
    if isinstance(document, list):
        for each in document:
            yield from environments(each)
    elif isinstance(document, dict):
        if isinstance(document.get("environment"), dict):
            yield document["environment"]
        if isinstance(document.get("env"), list):
            yield {
                each["name"]: each.get("valueFrom", each.get("value")) for each in document["env"]
            }
        for each in document.values():
            yield from environments(each)


def is_pinned(image):
    """Whether an image has a tag with a version, which does not move to the next one."""
    name, _, tag = image.rpartition(":")
    return bool(name) and "/" not in tag and re.match(r"\d+\.\d+\.\d+", tag) is not None


class TestCommands:
    def test_there_are_some_of_every_kind(self):
        assert sorted(COMMANDS) == [
            "compose server-1",
            "compose server-2",
            "compose upgrade",
            "kubernetes Deployment",
            "kubernetes Job",
        ]

    @pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
    def test_exist_with_their_options(self, command, monkeypatch):
        assert parsed(command, monkeypatch).run

    @pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
    def test_work_on_the_database_that_the_environment_names(self, command, monkeypatch):
        arguments = parsed(command, monkeypatch)

        assert database_of(arguments, "a test") == "postgresql://somebody@somewhere/toolrag"

    def test_of_servers_make_options_that_a_server_takes(self, monkeypatch):
        for command in COMMANDS.values():
            if command[0] == "serve":
                arguments = parsed(command, monkeypatch)
                assert arguments.port == 8765
                ServerOptions(host=arguments.host, api_key=KEY)
                with pytest.raises(ValueError, match="there is no key"):
                    ServerOptions(host=arguments.host)

    def test_upgrade_makes_the_roles_that_the_servers_user_is_in(self, monkeypatch):
        for command in COMMANDS.values():
            if command[0] == "db":
                assert parsed(command, monkeypatch).roles
        assert "in role toolrag_writer" in (DEPLOY / "server_role.sql").read_text()


class TestProbes:
    def test_ask_whether_it_is_ready_and_whether_it_is_alive(self):
        assert PATHS == {
            "startupProbe": "/livez",
            "readinessProbe": "/healthz",
            "livenessProbe": "/livez",
            "compose server": "/healthz",
            "compose balancer": "/livez",
        }

    @pytest.mark.parametrize("path", sorted(set(PATHS.values())))
    def test_ask_for_what_is_answered_without_a_key(self, path):
        routes = {route.path for route in rest_routes(SimpleNamespace(serving=None))}

        assert path in routes
        assert path in OPEN_PATHS

    def test_and_callers_use_names_that_the_server_answers_to(self, monkeypatch):
        arguments = parsed(COMMANDS["kubernetes Deployment"], monkeypatch)
        options = ServerOptions(
            host=arguments.host, api_key=KEY, allowed_hosts=tuple(arguments.allowed_host)
        )
        app = Starlette()
        app.add_route("/livez", lambda request: PlainTextResponse("alive"))
        client = TestClient(Guard(app, options))
        service = BY_KIND["Service"]["metadata"]
        name, namespace = service["name"], service["namespace"]
        names = [name, f"{name}.{namespace}", f"{name}.{namespace}.svc"]

        def status(host):
            return client.get("/livez", headers={"Host": host}).status_code

        for probe in PROBES.values():
            (header,) = probe["httpGet"]["httpHeaders"]
            assert header["name"] == "Host"
            assert status(header["value"]) == 200
        assert [status(each) for each in names] == [200] * 3
        assert status("10.1.2.3:8765") == 421  # As the kubelet would ask of itself.

    def test_ask_the_port_that_the_server_listens_on(self):
        container = CONTAINERS["Deployment"]
        (port,) = container["ports"]

        assert {probe["httpGet"]["port"] for probe in PROBES.values()} == {port["name"]}
        assert f"--port={port['containerPort']}" in container["args"]
        assert "127.0.0.1:8765/healthz" in str(SERVICES["server-1"]["healthcheck"])


class TestSecrets:
    def test_are_nowhere_in_the_files(self):
        assert secrets_in(COMPOSE) == secrets_in(OBJECTS) == []
        assert "Secret" not in BY_KIND

    @pytest.mark.parametrize(
        "document",
        [
            {"environment": {"TOOLRAG_API_KEY": "abc"}},
            {"environment": {"POSTGRES_PASSWORD": "${POSTGRES_PASSWORD:-abc}"}},
            {"environment": {"TOOLRAG_DATABASE": "postgresql://me:abc@here/toolrag"}},
            {"env": [{"name": "TOOLRAG_API_KEY", "value": "abc"}]},
            {"command": ["serve", "--database", "postgresql://me:abc@here/toolrag"]},
            {"environment": {"PGPASSWORD_FILE": "abc"}},
        ],
    )
    def test_would_be_seen_if_they_were(self, document):
        assert secrets_in([document])

    def test_of_compose_are_files_that_are_not_in_the_repository(self):
        declared = {name: each["file"] for name, each in COMPOSE["secrets"].items()}
        used = [name for service in SERVICES.values() for name in service.get("secrets", [])]

        assert set(used) == set(declared)
        assert set(declared.values()) == {f"secrets/{name}" for name in declared}
        assert "secrets/" in (DEPLOY / ".gitignore").read_text().split()
        assert "secrets" not in (DEPLOY / "Dockerfile.dockerignore").read_text()

    @pytest.mark.parametrize("name", sorted(SERVICES))
    def test_of_compose_are_given_to_whoever_reads_them(self, name):
        service = SERVICES[name]
        files = [value for value in service.get("environment", {}).values() if "/run/" in value]

        assert {Path(file).name for file in files} <= set(service.get("secrets", []))

    def test_of_kubernetes_are_the_owners_for_the_job_alone(self):
        names = {
            kind: {each["valueFrom"]["secretKeyRef"]["name"] for each in container["env"]}
            for kind, container in CONTAINERS.items()
        }

        assert names == {
            "Job": {"toolrag-database-owner"},
            "Deployment": {"toolrag-database-server", "toolrag-api-key"},
        }

    def test_that_are_files_become_the_variables_that_toolrag_reads(self, tmp_path):
        toolrag = tmp_path / "toolrag"
        toolrag.write_text('#!/bin/sh\nprintf "%s|%s|%s" "$PGPASSWORD" "$TOOLRAG_API_KEY" "$*"')
        toolrag.chmod(0o755)
        (tmp_path / "password").write_text("a $(b) \"c\" 'd' \\e\n")
        path = f"{tmp_path}:{os.environ['PATH']}"

        done = subprocess.run(
            ["/bin/sh", DEPLOY / "entrypoint.sh", "serve", "--host", "a b"],
            env={"PATH": path, "PGPASSWORD_FILE": tmp_path / "password", "TOOLRAG_API_KEY": "key"},
            capture_output=True,
            text=True,
            check=True,
        )

        assert done.stdout == "a $(b) \"c\" 'd' \\e|key|serve --host a b"

    def test_a_missing_file_ends_the_container_with_its_name(self, tmp_path):
        done = subprocess.run(
            ["/bin/sh", DEPLOY / "entrypoint.sh", "serve"],
            env={"PATH": os.environ["PATH"], "TOOLRAG_API_KEY_FILE": tmp_path / "none"},
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode != 0
        assert str(tmp_path / "none") in done.stderr


class TestImages:
    def test_are_pinned(self):
        images = [service["image"] for service in SERVICES.values()]
        images += [container["image"] for container in CONTAINERS.values()]
        images += re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)

        assert [image for image in images if not is_pinned(image)] == []
        assert images.count(IMAGE) == 5

    @pytest.mark.parametrize(
        "image", ["nginx", "nginx:latest", "nginx:1", "a:5000/nginx", "pg:pg18"]
    )
    def test_would_be_seen_if_they_were_not(self, image):
        assert not is_pinned(image)

    def test_are_made_of_files_that_are_there_and_reach_the_build(self):
        let_through = (DEPLOY / "Dockerfile.dockerignore").read_text()
        copied = re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", DOCKERFILE, re.MULTILINE)
        paths = [path for line in copied for path in line.split()]

        assert "pyproject.toml" in paths
        for path in paths:
            # The tests may run on an installed wheel, without the package beside them.
            there = PACKAGE if path == PACKAGE.name else ROOT / path
            assert there.exists()
            assert f"!{path}\n" in let_through

    def test_have_the_extras_that_the_commands_need(self):
        extras = re.search(r"pip install '\.\[(.+)\]'", DOCKERFILE)[1].split(",")

        assert {"serve", "postgres", "offline"} == set(extras)
        for extra in extras:
            assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)

    def test_have_the_telemetry_of_onnxruntime_turned_off(self):
        assert "ENV ORT_DISABLE_TELEMETRY=1\n" in DOCKERFILE

    def test_run_as_the_user_that_kubernetes_runs_them_as(self):
        user, group = re.search(r"^USER (\d+):(\d+)", DOCKERFILE, re.MULTILINE).groups()

        for pod in PODS.values():
            context = pod["spec"]["securityContext"]
            assert (str(context["runAsUser"]), str(context["runAsGroup"])) == (user, group)


class TestCompose:
    def test_fits_the_schema_of_compose_files(self):
        pytest.importorskip("check_jsonschema", reason="it needs Python 3.11")
        folder = resources.files("check_jsonschema.builtin_schemas.vendor")
        schema = json.loads((folder / "compose-spec.json").read_text("utf-8"))
        validator = jsonschema.validators.validator_for(schema)(schema)

        assert [error.message for error in validator.iter_errors(COMPOSE)] == []
        broken = {**COMPOSE, "services": {"server": {"imag": IMAGE}}}
        assert not validator.is_valid(broken)

    def test_starts_servers_once_the_tables_are_there(self):
        def condition(name, other):
            return SERVICES[name]["depends_on"][other]["condition"]

        assert condition("upgrade", "database") == "service_healthy"
        assert condition("server-1", "upgrade") == "service_completed_successfully"
        assert condition("server-2", "upgrade") == "service_completed_successfully"

    def test_shares_requests_out_to_the_servers(self):
        servers = re.findall(r"^\s+server (\S+):(\d+) ", NGINX, re.MULTILINE)

        assert servers == [("server-1", "8765"), ("server-2", "8765")]
        assert ":8080:8080" in SERVICES["balancer"]["ports"][0]
        assert "listen 8080;" in NGINX

    def test_repeats_no_call_and_every_search(self):
        repeated = re.search(r"location ~ (\S+) \{[^}]+non_idempotent;", NGINX)[1]
        posts = {r.path for r in rest_routes(SimpleNamespace(serving=None)) if "POST" in r.methods}

        assert {path for path in posts if re.search(repeated, path)} == {
            "/v1/search",
            "/v1/rank",
            "/v1/explain",
        }
        assert NGINX.count("non_idempotent") == 1

    def test_lets_only_this_machine_in(self):
        ports = [port for service in SERVICES.values() for port in service.get("ports", [])]

        assert ports == ["127.0.0.1:8080:8080"]

    def test_mounts_files_that_are_there(self):
        for each in COMPOSE["configs"].values():
            assert (DEPLOY / each["file"]).is_file()
        used = {c["source"] for service in SERVICES.values() for c in service.get("configs", [])}
        assert used == set(COMPOSE["configs"])

    @pytest.mark.parametrize("name", ["server-1", "server-2", "upgrade", "balancer"])
    def test_gives_its_containers_no_more_than_they_need(self, name):
        service = SERVICES[name]

        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]

    def test_connects_servers_as_a_user_who_does_not_own_the_tables(self):
        users = {
            name: urlsplit(SERVICES[name]["environment"]["TOOLRAG_DATABASE"]).username
            for name in ("upgrade", "server-1", "server-2")
        }

        assert users == {
            "upgrade": SERVICES["database"]["environment"]["POSTGRES_USER"],
            "server-1": "toolrag_server",
            "server-2": "toolrag_server",
        }


class TestKubernetes:
    @pytest.mark.parametrize("version", ["1.30", "1.34"])
    @pytest.mark.parametrize("each", OBJECTS, ids=lambda each: each["kind"])
    def test_objects_fit_the_schema_of_a_version(self, each, version):
        kubernetes_validate.validate(each, version, strict=True)

    def test_a_misspelt_field_would_be_seen(self):
        wrong = {**BY_KIND["Service"], "spec": {"selektor": {}}}

        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, "1.34", strict=True)

    def test_is_all_there_in_one_namespace(self):
        assert sorted(BY_KIND) == ["Deployment", "Job", "PodDisruptionBudget", "Service"]
        assert len(OBJECTS) == 4
        assert {each["metadata"]["namespace"] for each in OBJECTS} == {"toolrag"}

    def test_has_three_servers_of_which_two_always_stay(self):
        spec = BY_KIND["Deployment"]["spec"]

        assert spec["replicas"] == 3
        assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        assert BY_KIND["PodDisruptionBudget"]["spec"]["minAvailable"] == 2

    def test_selects_the_servers_and_not_the_job(self):
        labels = {kind: pod["metadata"]["labels"] for kind, pod in PODS.items()}
        selectors = [
            BY_KIND["Deployment"]["spec"]["selector"]["matchLabels"],
            BY_KIND["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
            BY_KIND["Service"]["spec"]["selector"],
        ]

        for selector in selectors:
            assert selector.items() <= labels["Deployment"].items()
            assert not selector.items() <= labels["Job"].items()

    def test_the_service_leads_to_the_servers_port(self):
        (port,) = BY_KIND["Service"]["spec"]["ports"]

        assert port["targetPort"] in {each["name"] for each in CONTAINERS["Deployment"]["ports"]}

    def test_the_job_has_the_name_of_its_version(self):
        assert BY_KIND["Job"]["metadata"]["name"].endswith(OURS.replace(".", "-"))

    @pytest.mark.parametrize("kind", PODS)
    def test_pods_run_without_rights(self, kind):
        pod, container = PODS[kind]["spec"], CONTAINERS[kind]

        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }

    @pytest.mark.parametrize("kind", PODS)
    def test_pods_say_what_they_need_and_can_write_in_one_place(self, kind):
        pod, container = PODS[kind]["spec"], CONTAINERS[kind]

        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]
        assert container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
        assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]
        assert "emptyDir" in pod["volumes"][0]

    def test_a_server_is_given_the_time_to_answer_what_it_has(self):
        pod, options = PODS["Deployment"]["spec"], ServerOptions()
        before = int(CONTAINERS["Deployment"]["lifecycle"]["preStop"]["exec"]["command"][1])

        assert pod["terminationGracePeriodSeconds"] > before + options.drain_seconds
        assert int(SERVICES["server-1"]["stop_grace_period"].rstrip("s")) > options.drain_seconds
