"""The scalar laws behind the normal forms, as an SMT-LIB script over the reals for a solver to prove one by one.

exp, log, sqrt and their like are uninterpreted; a law lists the instances of their axioms that it needs. Every
``(check-sat)`` asks for a counterexample, so each answer must be ``unsat``. Sums over dims are no scalar steps: where a
law is about them, it is stated for two elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleave.dialects.graph import Graph

HEADER = """; The scalar laws behind the normal forms of the programs of one certificate. Every answer must be unsat.
(set-logic ALL)
(declare-fun exp (Real) Real)
(declare-fun log (Real) Real)
(declare-fun sqrt (Real) Real)
(declare-fun rising (Real) Real)
(define-fun rsqrt ((x Real)) Real (/ 1 (sqrt x)))
(define-fun sigmoid ((x Real)) Real (/ 1 (+ 1 (exp (- x)))))
(define-fun max ((x Real) (y Real)) Real (ite (>= x y) x y))
(define-fun min ((x Real) (y Real)) Real (ite (<= x y) x y))
(define-fun abs_ ((x Real)) Real (ite (>= x 0) x (- x)))
"""


def _exp_of_sum(a: str, b: str) -> str:
    return f"(= (exp (+ {a} {b})) (* (exp {a}) (exp {b})))"


def _exp_positive(a: str) -> str:
    return f"(> (exp {a}) 0)"


def _exp_injective(a: str, b: str) -> str:
    return f"(or (= {a} {b}) (not (= (exp {a}) (exp {b}))))"


def _root(x: str) -> str:
    """Of a number that is not negative."""
    return f"(and (>= (sqrt {x}) 0) (= (* (sqrt {x}) (sqrt {x})) {x}))"


@dataclass(frozen=True)
class Law:
    """``left = right`` for all reals where ``given`` holds; ``ops``: a program that has them all may use it."""

    name: str
    ops: frozenset[str]
    left: str
    right: str
    given: tuple[str, ...] = ()
    reals: str = "a b c d"
    booleans: str = ""

    def script(self) -> str:
        """The negated law between push and pop."""
        lines = [f"; {self.name}", "(push)"]
        lines += [f"(declare-const {name} Real)" for name in self.reals.split()]
        lines += [f"(declare-const {name} Bool)" for name in self.booleans.split()]
        lines += [f"(assert {text})" for text in self.given]
        return "\n".join([*lines, f"(assert (not (= {self.left} {self.right})))", "(check-sat)", "(pop)", ""])


def _law(name: str, ops: str, left: str, right: str, *given: str, booleans: str = "") -> Law:
    return Law(name, frozenset(ops.split()), left, right, given, booleans=booleans)


LAWS: Sequence[Law] = (
    _law("products distribute over sums", "", "(* a (+ b c))", "(+ (* a b) (* a c))"),
    _law("a factor that is alike leaves a sum", "contract", "(+ (* a c) (* b c))", "(* (+ a b) c)"),
    _law(
        "a divisor that is alike leaves a contraction",
        "div contract",
        "(+ (* (/ a d) b) (* (/ b d) c))",
        "(/ (+ (* a b) (* b c)) d)",
        "(not (= d 0))",
    ),
    _law("quotients multiply", "div", "(* (/ a b) (/ c d))", "(/ (* a c) (* b d))", "(not (= b 0))", "(not (= d 0))"),
    _law("a common factor cancels", "div", "(/ (* a c) (* b c))", "(/ a b)", "(not (= b 0))", "(not (= c 0))"),
    _law("the square of a difference", "sub", "(* (- a b) (- a b))", "(+ (- (* a a) (* 2 (* a b))) (* b b))"),
    _law(
        "exponentials of differences are rescaled",
        "exp",
        "(* (exp (+ a (- b))) (exp (+ b (- c))))",
        "(exp (+ a (- c)))",
        _exp_of_sum("a", "(- b)"),
        _exp_of_sum("b", "(- c)"),
        _exp_of_sum("a", "(- c)"),
        _exp_of_sum("b", "(- b)"),
        "(= (exp 0) 1)",
        "(= (exp (+ b (- b))) (exp 0))",
    ),
    _law(
        "a shift cancels in a softmax",
        "exp div",
        "(/ (exp (+ a (- c))) (+ (exp (+ a (- c))) (exp (+ b (- c)))))",
        "(/ (exp a) (+ (exp a) (exp b)))",
        _exp_of_sum("a", "(- c)"),
        _exp_of_sum("b", "(- c)"),
        *map(_exp_positive, ("a", "b", "(- c)")),
    ),
    _law(
        "an exponential leaves a logarithm",
        "exp log",
        "(log c)",
        "(+ a (log b))",
        "(= c (* (exp a) b))",
        "(= (exp (log b)) b)",
        "(= (exp (log c)) c)",
        _exp_of_sum("a", "(log b)"),
        _exp_injective("(log c)", "(+ a (log b))"),
    ),
    _law(
        "log of a product",
        "log",
        "(log c)",
        "(+ (log a) (log b))",
        "(= c (* a b))",
        *(f"(= (exp (log {x})) {x})" for x in "abc"),
        _exp_of_sum("(log a)", "(log b)"),
        _exp_injective("(log c)", "(+ (log a) (log b))"),
    ),
    _law(
        "roots multiply",
        "rsqrt mul",
        "(sqrt (* a b))",
        "(* (sqrt a) (sqrt b))",
        "(> a 0)",
        "(> b 0)",
        *map(_root, ("a", "b", "(* a b)")),
    ),
    _law("a root of a square", "sqrt mul", "(sqrt (* a a))", "(abs_ a)", _root("(* a a)")),
    _law("a number over its root", "rsqrt", "(* a (rsqrt a))", "(sqrt a)", "(> a 0)", _root("a")),
    _law("an inverse root squared", "rsqrt mul", "(* (rsqrt a) (rsqrt a))", "(/ 1 a)", "(> a 0)", _root("a")),
    _law(
        "sigmoid as a quotient of exponentials",
        "sigmoid",
        "(sigmoid a)",
        "(/ (exp a) (+ 1 (exp a)))",
        _exp_of_sum("a", "(- a)"),
        "(= (exp (+ a (- a))) 1)",
        *map(_exp_positive, ("a", "(- a)")),
    ),
    _law("select leaves a product", "select mul", "(* (ite p a 0) b)", "(ite p (* a b) 0)", booleans="p"),
    _law("select of two parts", "select", "(+ (ite p a 0) (ite p 0 b))", "(ite p a b)", booleans="p"),
    _law("maxima of parts", "reduce", "(max (max a b) (max c d))", "(max a (max b (max c d)))"),
    _law("a summand leaves a maximum", "reduce", "(max (+ a c) (+ b c))", "(+ (max a b) c)"),
    _law(
        "a factor that is not negative leaves a maximum",
        "reduce",
        "(max (* a c) (* b c))",
        "(* (max a b) c)",
        "(>= c 0)",
    ),
    _law(
        "a maximum goes into what never falls",
        "reduce",
        "(max (rising a) (rising b))",
        "(rising (max a b))",
        "(=> (>= a b) (>= (rising a) (rising b)))",
        "(=> (>= b a) (>= (rising b) (rising a)))",
    ),
    _law(
        "a minimum of inverses is the inverse of a maximum",
        "div reduce",
        "(min (/ 1 a) (/ 1 b))",
        "(/ 1 (max a b))",
        "(> a 0)",
        "(> b 0)",
    ),
    _law("a minimum is a maximum", "min", "(min a b)", "(- (max (- a) (- b)))"),
    _law("the absolute of a negative", "abs", "(abs_ (- a))", "(abs_ a)"),
)


def laws_for(graphs: Iterable[Graph]) -> list[Law]:
    """Those whose ops all occur in one of the graphs."""
    present = [{value.op for value in graph.topological()} for graph in graphs]
    return [law for law in LAWS if any(law.ops <= ops for ops in present)]


def script(graphs: Iterable[Graph]) -> str:
    """The SMT-LIB script of the laws that the graphs may use."""
    return "\n".join([HEADER, *(law.script() for law in laws_for(graphs))])
