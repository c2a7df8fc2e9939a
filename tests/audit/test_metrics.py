"""Counting calls, and what Prometheus is shown of it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bascule.audit.events import SessionOpened
from bascule.audit.metrics import LATENCY_BOUNDS, SIZE_BOUNDS, Metrics
from bascule.model.code import ErrorCode
from bascule.model.decision import Reason
from checks.tree import ROOT
from tests.audit.filled_metrics import Busy, Kept, filled

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Read the text form back with Prometheus' own parser."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, frozenset(labels.items())))


def buckets(metrics: Metrics, name: str, **labels: str) -> dict[str, float]:
    """Return a histogram's cumulative counts by upper bound."""
    return {
        dict(found)["le"]: count
        for (sample, found), count in samples(metrics).items()
        if sample == f"{name}_bucket" and set(labels.items()) <= found
    }


def call(metrics: Metrics, tool: str = "read", *, code: str | None = None) -> None:
    metrics.tool("fs", tool).observe(code, 3.0, 300)


def types(metrics: Metrics) -> dict[str, str]:
    text = metrics.render().decode()
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


def test_time_for_which_a_server_was_not_read_is_counted_in_seconds():
    metrics = Metrics()
    metrics.throttled("fs", 0.25)
    metrics.throttled("fs", 0.5)
    metrics.connected("git")
    assert value(metrics, "mcp_server_throttled_seconds_total", server_id="fs") == 0.75
    assert value(metrics, "mcp_server_throttled_seconds_total", server_id="git") is None


def test_connects_are_counted_by_server():
    metrics = Metrics()
    metrics.connected("fs")
    metrics.connected("fs")
    metrics.connected("git")
    assert value(metrics, "mcp_server_connect_total", server_id="fs") == 2
    assert value(metrics, "mcp_server_connect_total", server_id="git") == 1


def test_calls_are_counted_by_server_and_tool():
    metrics = Metrics()
    call(metrics)
    call(metrics, code="mcp_tool_error")
    call(metrics, "write")
    assert value(metrics, "mcp_tool_call_total", server_id="fs", tool="read") == 2
    assert value(metrics, "mcp_tool_call_total", server_id="fs", tool="write") == 1


def test_failures_are_counted_by_code_and_successes_are_not():
    metrics = Metrics()
    call(metrics)
    call(metrics, code="mcp_policy_denied")
    labels = {"server_id": "fs", "tool": "read", "code": "mcp_policy_denied"}
    assert value(metrics, "mcp_tool_call_error_total", **labels) == 1
    errors = [name for name, _ in samples(metrics) if name == "mcp_tool_call_error_total"]
    assert len(errors) == 1


@pytest.mark.requirement("observability:timeout-rate")
def test_the_rate_of_timeouts_of_a_tool_can_be_read():
    metrics = Metrics()
    for code in (None, None, "mcp_tool_error", "mcp_timeout"):
        call(metrics, code=code)
    tool = {"server_id": "fs", "tool": "read"}
    timeouts = value(metrics, "mcp_tool_call_error_total", **tool, code="mcp_timeout")
    calls = value(metrics, "mcp_tool_call_total", **tool)
    assert timeouts is not None
    assert calls is not None
    assert timeouts / calls == 0.25


@pytest.mark.requirement("observability:latency")
def test_the_duration_of_calls_is_a_histogram_by_server_and_tool():
    metrics = Metrics()
    stats = metrics.tool("fs", "read")
    for milliseconds in (0.2, 5.0, 5.1, 1e9):
        stats.observe(None, milliseconds, 0)
    found = buckets(metrics, "mcp_tool_call_latency_ms", server_id="fs", tool="read")
    assert found["0.5"] == 1
    assert found["5.0"] == 2, "a bound belongs to its own bucket"
    assert found["10.0"] == 3
    assert found["60000.0"] == 3
    assert found["+Inf"] == 4
    assert len(found) == len(LATENCY_BOUNDS) + 1
    labels = {"server_id": "fs", "tool": "read"}
    assert value(metrics, "mcp_tool_call_latency_ms_count", **labels) == 4
    assert value(metrics, "mcp_tool_call_latency_ms_sum", **labels) == 1e9 + 10.3


@pytest.mark.requirement("observability:output-bytes")
def test_the_size_of_results_is_a_histogram_by_server_and_tool():
    metrics = Metrics()
    stats = metrics.tool("fs", "read")
    for size in (0, 256, 257, 200_000_000):
        stats.observe(None, 1.0, size)
    found = buckets(metrics, "mcp_tool_call_output_bytes", server_id="fs", tool="read")
    assert [found[le] for le in ("256.0", "1024.0", "104857600.0", "+Inf")] == [2, 3, 3, 4]
    assert len(found) == len(SIZE_BOUNDS) + 1
    total = value(metrics, "mcp_tool_call_output_bytes_sum", server_id="fs", tool="read")
    assert total == 200_000_513


@pytest.mark.requirement("observability:list-latency")
def test_the_time_to_list_tools_is_a_histogram_by_server():
    metrics = Metrics()
    metrics.listed("fs", 40.0)
    metrics.listed("fs", 12_000.0)
    found = buckets(metrics, "mcp_list_tools_latency_ms", server_id="fs")
    assert [found[le] for le in ("25.0", "50.0", "10000.0", "+Inf")] == [0, 1, 1, 2]
    assert value(metrics, "mcp_list_tools_latency_ms_sum", server_id="fs") == 12_040


def test_offered_lists_are_counted_by_server_and_status():
    metrics = Metrics()
    metrics.injected("fs", "success")
    metrics.injected("fs", "success")
    metrics.injected("fs", "failed")
    metrics.injected("git", "denied")
    assert value(metrics, "mcp_injection_total", server_id="fs", status="success") == 2
    assert value(metrics, "mcp_injection_total", server_id="fs", status="failed") == 1
    assert value(metrics, "mcp_injection_total", server_id="git", status="denied") == 1


def test_denials_are_counted_by_server_and_reason_under_the_very_name():
    metrics = Metrics()
    metrics.denied("fs", "not_allowed")
    metrics.denied("fs", "env_missing")
    metrics.denied("fs", "env_missing")
    assert value(metrics, "mcp_denied_reason", server_id="fs", reason="not_allowed") == 1
    assert value(metrics, "mcp_denied_reason", server_id="fs", reason="env_missing") == 2
    assert b"mcp_denied_reason_total" not in metrics.render()


def test_codes_and_reasons_outside_the_closed_sets_are_other():
    metrics = Metrics()
    for word in (*get_args(ErrorCode), "made up", "cancelled"):
        call(metrics, code=word)
    for word in (*get_args(Reason), "made up"):
        metrics.denied("fs", word)
    labels = [dict(found) for _, found in samples(metrics)]
    assert {found["code"] for found in labels if "code" in found} == {*get_args(ErrorCode), "other"}
    assert {found["reason"] for found in labels if "reason" in found} == {
        *get_args(Reason),
        "other",
    } - {"allowed"}
    tool = {"server_id": "fs", "tool": "read"}
    assert value(metrics, "mcp_tool_call_error_total", **tool, code="other") == 2


def test_the_same_tool_has_the_same_figures_and_another_server_has_its_own():
    metrics = Metrics()
    assert metrics.tool("fs", "read") is metrics.tool("fs", "read")
    assert metrics.tool("fs", "read") is not metrics.tool("git", "read")


def test_tools_past_the_bound_share_one_series_and_earlier_ones_keep_theirs():
    metrics = Metrics(max_series=2)
    for tool in ("a", "b", "c", "d", "a"):
        call(metrics, tool)
    assert value(metrics, "mcp_tool_call_total", server_id="fs", tool="a") == 2
    assert value(metrics, "mcp_tool_call_total", server_id="fs", tool="c") is None
    assert value(metrics, "mcp_tool_call_total", server_id="_other", tool="_other") == 2


def test_servers_past_the_bound_share_one_series():
    metrics = Metrics(max_series=1)
    for server in ("fs", "git", "web"):
        metrics.connected(server)
        metrics.denied(server, "unavailable")
    assert value(metrics, "mcp_server_connect_total", server_id="fs") == 1
    assert value(metrics, "mcp_server_connect_total", server_id="_other") == 2
    assert value(metrics, "mcp_denied_reason", server_id="_other", reason="unavailable") == 2


def test_names_that_a_caller_invents_become_no_labels_and_use_up_no_series():
    metrics = Metrics(max_series=5)
    for number in range(100):
        metrics.denied(f"invented{number}", "unknown_server")
    metrics.connected("fs")
    assert value(metrics, "mcp_denied_reason", server_id="_other", reason="unknown_server") == 100
    assert value(metrics, "mcp_server_connect_total", server_id="fs") == 1
    assert b"invented" not in metrics.render()


def test_a_tool_name_with_quotes_and_line_breaks_is_escaped():
    metrics = Metrics()
    name = 'say "hi"\\\nmcp_fake_total 1'
    call(metrics, name)
    assert value(metrics, "mcp_tool_call_total", server_id="fs", tool=name) == 1
    assert "mcp_fake_total" not in types(metrics)


def test_the_collector_serves_a_registry_and_shows_later_counts():
    metrics = Metrics()
    registry = CollectorRegistry()
    registry.register(metrics.collector())
    call(metrics)
    assert b'mcp_tool_call_total{server_id="fs",tool="read"} 1.0' in generate_latest(registry)


def test_counting_does_not_import_the_library_that_renders():
    script = (
        "import sys; from bascule.audit.metrics import Metrics; m = Metrics();"
        "m.tool('fs', 'read').observe(None, 1.0, 1);"
        "assert 'prometheus_client' not in sys.modules; m.render();"
        "assert 'prometheus_client' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=20)


def test_what_is_under_way_at_the_gateway_is_shown_where_there_is_one():
    metrics = Metrics()
    metrics.gateway = Busy()
    assert value(metrics, "mcp_gateway_streams") == 3
    assert value(metrics, "mcp_gateway_calls") == 2


def test_the_state_of_the_ledger_is_shown_where_there_is_one():
    metrics = Metrics()
    metrics.ledger = Kept()
    assert value(metrics, "mcp_ledger_rows") == 7
    assert value(metrics, "mcp_ledger_backlog_bytes") == 100
    assert value(metrics, "mcp_ledger_down") == 1


def test_requests_that_are_turned_away_are_counted_by_code_and_no_caller_makes_up_codes():
    metrics = Metrics()
    for number in range(1000):
        metrics.turned_away(f"code-{number}")
    assert value(metrics, "mcp_request_refused_total", code="code-3") == 1
    assert value(metrics, "mcp_request_refused_total", code="other") == 800


def test_the_table_of_the_docs_has_every_family_with_its_type_and_labels_and_no_other():
    metrics = filled()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \|", PAGE, re.MULTILINE)
    assert {name: kind for name, kind, _ in rows} == types(metrics)
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, _, labels in rows}
    rendered = {
        re.sub(r"_(bucket|sum|count)$", "", name): set(dict(labels)) - {"le"}
        for name, labels in samples(metrics)
    }
    assert documented == rendered


def test_every_family_is_shown_before_anything_was_counted():
    assert len(types(Metrics())) == 19
    assert samples(Metrics()) == {}


@pytest.mark.requirement("observability:session-totals")
def test_turns_calls_and_budget_hits_of_chat_requests_are_counted():
    metrics = Metrics()
    metrics.conversed(iterations=3, calls=2)
    metrics.conversed(iterations=8, calls=40, budget="max_iterations")
    metrics.conversed(iterations=1, calls=0, budget="an invention")
    assert value(metrics, "mcp_chat_iterations_sum") == 12
    assert buckets(metrics, "mcp_chat_iterations")["3.0"] == 2
    assert buckets(metrics, "mcp_chat_tool_calls")["32.0"] == 2
    assert value(metrics, "mcp_chat_tool_calls_count") == 3
    assert value(metrics, "mcp_budget_hit_total", budget="max_iterations") == 1
    assert value(metrics, "mcp_budget_hit_total", budget="other") == 1


def test_the_effective_servers_are_a_field_of_the_event_that_the_docs_name():
    assert "`mcp_effective_servers` is not a metric" in PAGE
    assert SessionOpened.__struct_config__.tag == "session_opened"
    assert "mcp_effective_servers" in SessionOpened.__struct_fields__
