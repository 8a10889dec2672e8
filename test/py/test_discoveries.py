"""Row by row of the superoptimiser's table: the program that must be found is among the results, by its structure."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from discovery_programs import PROGRAMS

from cleave.dialects.graph import Graph, Value
from cleave.passes.superopt import Superopt
from cleave.search import Alternative, SearchOptions, superoptimise

Holds = Callable[[Graph], bool]


@cache
def alternatives(name: str) -> tuple[Alternative, ...]:
    """What the pass keeps by default."""
    return superoptimise(PROGRAMS[name](), SearchOptions(keep=Superopt.keep)).alternatives


# --- what a program looks like ---------------------------------------------------------------------------------------


def upstream(value: Value) -> set[Value]:
    """The value and all that it is computed from."""
    found, stack = set[Value](), [value]
    while stack:
        value = stack.pop()
        if value not in found:
            found.add(value)
            stack.extend(value.operands)
    return found


def is_reduction(value: Value, kind: str = "sum", over: str | None = None) -> bool:
    own = "sum" if value.op == "contract" else value.attrs.get("kind")
    return value.op in ("contract", "reduce") and own == kind and (over is None or over in value.attrs["over"])


def depth(graph: Graph) -> int:
    """How many reductions depend on each other."""
    deep: dict[Value, int] = {}
    for value in graph.topological():
        deep[value] = (value.op in ("contract", "reduce")) + max((deep[o] for o in value.operands), default=0)
    return max(deep[output] for output in graph.outputs)


def bare(value: Value) -> Value:
    """What the value is without casts and views."""
    while value.op in ("cast", "rename", "split", "slice"):
        (value,) = value.operands
    return value


def divides_last(graph: Graph, dim: str = "n") -> bool:
    """The exponentials are summed and contracted as they are: no sum over the dim feeds another, and one is divided."""
    values = graph.topological()
    sums = [v for v in values if is_reduction(v, over=dim) and any(u.op == "exp" for u in upstream(v))]
    independent = not any(a is not b and a in upstream(b) for a in sums for b in sums)
    divided = [v for v in values if v.op == "div" and upstream(v.operands[0]) & set(sums)]
    return independent and bool(divided) and not any(dim in v.names for v in divided)


def in_parts(graph: Graph, dim: str = "n") -> bool:
    """Each part of the dim has its own maximum and sums of exponentials; they are rescaled and added after."""
    values = graph.topological()
    splits = {tuple(word.partition("=")[0] for word in v.attrs["into"]) for v in values if v.op == "split"}
    for outer, inner in splits:
        maxima = [v for v in values if is_reduction(v, "max", inner) and outer in v.names]
        overall = [v for v in values if is_reduction(v, "max", outer) and upstream(v) & set(maxima)]
        partial = [v for v in values if is_reduction(v, over=inner) and outer in v.names]
        partial = [v for v in partial if any(u.op == "exp" for u in upstream(v))]
        combined = [v for v in values if is_reduction(v, over=outer) and upstream(v) & set(partial)]
        if maxima and overall and partial and combined:
            return not any(is_reduction(v, kind, dim) for v in values for kind in ("sum", "max"))
    return False


def split_contraction(dim: str) -> Holds:
    def holds(graph: Graph) -> bool:
        values = graph.topological()
        cuts = [v.attrs["into"][0].partition("=")[0] for v in values if v.op == "split" and v.attrs["dim"] == dim]
        return any(is_reduction(v, over=outer) for v in values for outer in cuts)

    return holds


def scale_after(dim: str) -> Holds:
    """Contractions over the dim see no root, and there is one."""

    def holds(graph: Graph) -> bool:
        values = graph.topological()
        roots = {v for v in values if v.op in ("rsqrt", "sqrt")}
        return bool(roots) and not any(upstream(v) & roots for v in values if is_reduction(v, over=dim))

    return holds


def makes(names: str) -> Holds:
    """Some reduction has these dims and no others."""
    return lambda graph: any(v.op in ("contract", "reduce") and set(v.names) == set(names) for v in graph.topological())


def makes_none(*groups: str) -> Holds:
    """No value has all dims of one of the groups."""
    return lambda graph: not any(set(group) <= set(v.names) for v in graph.topological() for group in groups)


def of_depth(number: int) -> Holds:
    return lambda graph: depth(graph) <= number


def independent(dim: str) -> Holds:
    """No reduction over the dim needs another one."""

    def holds(graph: Graph) -> bool:
        found = [v for v in graph.topological() if v.op in ("contract", "reduce") and dim in v.attrs["over"]]
        return len(found) > 1 and not any(a is not b and a in upstream(b) for a in found for b in found)

    return holds


def shorter_by(number: int, name: str) -> Holds:
    return lambda graph: depth(graph) <= depth(PROGRAMS[name]()) - number


def both(*conditions: Holds) -> Holds:
    return lambda graph: all(holds(graph) for holds in conditions)


def either(*conditions: Holds) -> Holds:
    return lambda graph: any(holds(graph) for holds in conditions)


def measured_by(value: Value, symbol: str) -> set[str]:
    """The dims whose size has the symbol: a dim, or the inner one of the two that it was cut into."""
    return {dim.name for dim in value.dims if symbol in dim.size.symbols}


def absorbed(graph: Graph) -> bool:
    """The query meets the key's projection first, and the scores are with the latent itself."""
    values = graph.topological()
    queries = [v for v in values if is_reduction(v, over="d") and "r" in v.names and not measured_by(v, "n")]
    scores = [v for v in values if is_reduction(v, over="r") and measured_by(v, "n") and upstream(v) & set(queries)]
    return any(bare(o).op == "input" and measured_by(o, "n") for v in scores for o in v.operands)


def latent_values(graph: Graph) -> bool:
    """Probabilities are contracted with the latent, which is the value as it is the key."""
    return any(
        bare(latent).op == "input" and "r" in latent.names and measured_by(latent, "n") & set(v.attrs["over"])
        for v in graph.topological()
        if v.op == "contract"
        for latent in v.operands
    )


def rank_two_correction(graph: Graph) -> bool:
    """x meets the weight uncentred; the column sums of the weight are multiplied by the mean, after."""
    values = graph.topological()
    products = [v for v in values if is_reduction(v, over="k") and set(v.names) == {"m", "n"}]
    column_sums = [v for v in values if is_reduction(v, over="k") and v.names == ("n",)]
    sums = [v for v in values if is_reduction(v, over="k") and v.op == "reduce"]
    return bool(column_sums) and not any(upstream(v) & set(sums) for v in products)


def scale_inside_sigmoid(graph: Graph) -> bool:
    """One statistic; both contractions take x as it is (times the gain, at most); the scale is before the sigmoid."""
    values = graph.topological()
    products = [v for v in values if v.op == "contract" and set(v.names) == {"m", "n"}]
    sigmoids = [v for v in values if v.op == "sigmoid"]
    inside = sigmoids and all(any(u.op == "rsqrt" for u in upstream(v)) for v in sigmoids)
    return bool(inside) and len(products) == 2 and scale_after("k")(graph) and depth(graph) == 1


def merged_update(graph: Graph) -> bool:
    """Every output is one contraction with x: the update is added to the weight."""
    return all(sum(is_reduction(v, over="k") for v in upstream(output)) == 1 for output in graph.outputs)


def shared_factor(graph: Graph) -> bool:
    """x·A once, for all outputs."""
    low = [v for v in graph.topological() if v.op == "contract" and set(v.names) == {"m", "r"}]
    return len(low) == 1 and all(low[0] in upstream(output) for output in graph.outputs)


def reads_labels_in_parts(graph: Graph) -> bool:
    values = graph.topological()
    cuts = [tuple(w.partition("=")[0] for w in v.attrs["into"]) for v in values if v.op == "split"]
    return any(is_reduction(v, over=inner) and any(u.op == "select" for u in upstream(v))
               for v in values for _, inner in cuts)  # fmt: skip


def label_beside_the_maximum(graph: Graph) -> bool:
    """In parts, the label's logit and the maximum are taken from the same logits."""
    values = graph.topological()
    inner = {w.partition("=")[0] for v in values if v.op == "split" for w in v.attrs["into"][1:]}

    def logits(kind: str, through: str = "") -> set[Value]:
        taken = (v.operands[0] for v in values for over in inner if is_reduction(v, kind, over))
        return {logit for v in taken for logit in (v.operands if v.op == through else (v,)) if is_reduction(logit)}

    return bool(logits("max") & logits("sum", "select"))


def variance_in_parts(graph: Graph) -> bool:
    """Chan's: a mean and a sum of squared deviations for each part."""
    values = graph.topological()
    for v in values:
        if v.op == "split":
            outer, inner = (word.partition("=")[0] for word in v.attrs["into"])
            sums = [u for u in values if is_reduction(u, over=inner) and outer in u.names]
            if any(a is not b and a in upstream(b) for a in sums for b in sums):
                return True
    return False


def gated_output(graph: Graph) -> bool:
    """The gate's sigmoid is in the output and in no reduction."""
    values = graph.topological()
    gates = {v for v in values if v.op == "sigmoid"}
    reductions = [v for v in values if v.op in ("contract", "reduce")]
    return bool(gates) and not any(upstream(v) & gates for v in reductions)


def one_pass_over_inputs(dim: str) -> Holds:
    """No reduction over the dim that reads an input of rows waits for another one that reads it."""

    def holds(graph: Graph) -> bool:
        reads = [v for v in graph.topological() if is_reduction(v, over=dim) and "m" in v.names]
        return len(reads) > 1 and not any(a is not b and a in upstream(b) for a in reads for b in reads)

    return holds


def shared_exponentials(graph: Graph) -> bool:
    """One exponential of the scores, one sum, for both outputs."""
    exps = [v for v in graph.topological() if v.op == "exp" and {"m", "n"} <= set(v.names)]
    return len(exps) == 1 and all(exps[0] in upstream(output) for output in graph.outputs)


# --- the table -------------------------------------------------------------------------------------------------------

SAFE = "attention attention_bf16 additive_mask causal soft_cap soft_cap_causal window sink window_cap_sink alibi"
GROUPED = "gqa gqa_heads mqa"
OTHERS = "exported_attention sdpa mla mla_decode mla_cache gated differential attention_lse opaque_middle appended"
SIZED = "attention_n128 attention_n131072"
NORMED = "qk_norm cosine"

TABLE: dict[tuple[str, str], Holds] = {
    **{
        (name, "division after PV, a reduction less in the chain"): both(divides_last, shorter_by(1, name))
        for name in f"{SAFE} {GROUPED} {OTHERS} {SIZED} {NORMED}".split()
    },
    **{
        (name, "keys in parts, each with maximum, sum and PV"): in_parts
        for name in f"{SAFE} {GROUPED} {OTHERS} {SIZED} {NORMED}".split()
    },
    ("gqa", "keys and values not repeated"): both(divides_last, makes_none("gnd", "gne")),
    ("gqa_heads", "keys and values not repeated"): both(divides_last, makes_none("gnd", "gne")),
    ("mqa", "keys and values not repeated"): both(divides_last, makes_none("hnd", "hne")),
    **{
        (name, f"norm scales outside the contraction, {kind}"): both(scale_after("d"), holds)
        for name in NORMED.split()
        for kind, holds in (("whole", divides_last), ("in parts", in_parts))
    },
    **{
        (name, text): holds
        for name in ("mla", "mla_decode", "mla_cache")
        for text, holds in (
            ("key projection absorbed into the query", absorbed),
            ("values are the latent", both(latent_values, divides_last)),
            ("neither keys nor values of all heads", both(absorbed, latent_values)),
            ("the same in parts", both(absorbed, latent_values, in_parts)),
        )
    },
    **{
        (name, "scale after the contraction, statistics beside it"): both(scale_after("k"), independent("k"))
        for name in (
            *("rmsnorm_linear", "rmsnorm_linear_without_gain", "rmsnorm_linear_bias"),
            *("layernorm_linear", "layernorm_linear_symbolic"),
        )
    },
    **{
        (name, "mean as a correction by column sums"): both(rank_two_correction, independent("k"))
        for name in ("layernorm_linear", "layernorm_linear_symbolic")
    },
    ("rmsnorm_swiglu", "scale inside silu, x as it is in both contractions"): scale_inside_sigmoid,
    ("matmul", "split-K"): split_contraction("k"),
    ("matmul_matmul", "reassociated"): makes("hde"),
    ("matmul_matmul", "split-K"): split_contraction("n"),
    ("matmul_rowsum", "row sums of the weight first"): both(makes("k"), makes_none("mn")),
    ("lora", "as is"): both(makes("mr"), makes("mn")),
    ("lora", "update added to the weight"): merged_update,
    ("lora_shared", "x·A once"): shared_factor,
    ("lora_shared", "updates added to the weights"): merged_update,
    ("linear_attention", "keys with values first"): both(makes("hde"), makes_none("mn")),
    ("log_sum_exp", "vocabulary in parts"): lambda graph: in_parts(graph, "v"),
    ("cross_entropy", "vocabulary in parts"): lambda graph: in_parts(graph, "v"),
    ("cross_entropy", "the label's logit in parts"): reads_labels_in_parts,
    ("cross_entropy", "label and maximum in one pass"): label_beside_the_maximum,
    ("top_probability", "vocabulary in parts"): lambda graph: in_parts(graph, "v"),
    ("top_probability", "a reduction less in the chain"): shorter_by(1, "top_probability"),
    ("ngpt", "one round of reductions"): of_depth(1),
    ("variance", "in parts (Chan)"): variance_in_parts,
    ("variance", "one pass, less an offset"): independent("k"),
    ("layernorm_linear_bias", "scale after the contraction, in one pass"): both(scale_after("k"), independent("k")),
    ("layernorm_linear_bias", "mean as a correction by column sums"): rank_two_correction,
    ("gated", "the gate beside both divided and undivided values"): both(divides_last, gated_output),
    ("rmsnorm_swiglu", "x is read by one pass"): one_pass_over_inputs("k"),
    ("lora", "as is, in one pass over x"): both(makes("mr"), makes("mn"), one_pass_over_inputs("k")),
    ("differential", "both divisions after PV"): both(divides_last, makes_none("mnhe")),
    ("attention_lse", "two outputs share exponentials"): both(shared_exponentials, divides_last),
}

KNOWN_GAPS: dict[tuple[str, str], str] = {}


def cases() -> list[object]:
    return [
        pytest.param(
            name,
            text,
            id=f"{name}: {text}",
            marks=[pytest.mark.xfail(reason=KNOWN_GAPS[name, text], strict=True)] if (name, text) in KNOWN_GAPS else [],
        )
        for name, text in TABLE
    ]


@pytest.mark.parametrize(("name", "text"), cases())
def test_found(name: str, text: str) -> None:
    source, *others = alternatives(name)
    candidates = [source, *others] if text.startswith(("as is", "x·A once")) else others
    found = [a for a in candidates if TABLE[name, text](a.graph)]
    assert found
    assert all(certified(a) or a is source for a in found)


def certified(alternative: Alternative) -> bool:
    """Proved by normal form, and tested in prime fields and floats."""
    proof = alternative.certificate
    fields, floats = proof.fingerprint, proof.floats
    return bool(proof.normal_form) and fields is not None and floats is not None and 0 < fields.error_bound < 1e-12


def test_predicates_can_fail() -> None:
    """No source is already what is to be found, except where it says so."""
    for (name, text), holds in TABLE.items():
        if text not in ("as is", "as is, in one pass over x", "x·A once", "keys and values not repeated"):
            assert not holds(PROGRAMS[name]()), (name, text)


@pytest.mark.parametrize("name", ["attention_lse", "lora_shared", "opaque_middle"])
def test_outputs_keep_their_order(name: str) -> None:
    source = PROGRAMS[name]()
    for alternative in alternatives(name):
        assert [output.type for output in alternative.graph.outputs] == [output.type for output in source.outputs]
        gathers = [v for v in alternative.graph.topological() if v.op == "gather"]
        assert len(gathers) == sum(v.op == "gather" for v in source.topological())
