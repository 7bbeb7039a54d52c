"""Mutants of a source text: each is one small change that a test should notice.

A mutant is a value, the replacement of a span of bytes. It is named by texts (of its statement, before and after), not by its
line, so that an accepted one stays accepted when lines move. Annotations, decorators, docstrings, messages (f-strings) and
log statements are left alone: no behaviour hangs on them, or other tests read them as a whole.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_ARITHMETIC: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.FloorDiv(),
    ast.FloorDiv: ast.Mult(),
    ast.Div: ast.Mult(),
    ast.Mod: ast.FloorDiv(),
    ast.BitOr: ast.BitAnd(),
    ast.BitAnd: ast.BitOr(),
}
# An int from here on is a limit, a size or a time.
_MANY = 10
_TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGGING = frozenset({"debug", "info", "warning", "error", "exception", "log"})
_REMOVED = (ast.Expr, ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break, ast.Return, ast.Assign)


@dataclass(frozen=True, slots=True)
class Mutant:
    """`new` in place of the bytes from `start` to `end` of file `path`."""

    path: str
    line: int
    # The lines of its statement: of a compound one the head.
    lines: tuple[int, int]
    # The outermost function around it; "" for what runs when the module is imported, also where that calls a function.
    function: str
    start: int
    end: int
    old: str
    new: str
    statement: str

    def apply(self, text: str) -> str:
        raw = text.encode()
        return (raw[: self.start] + self.new.encode() + raw[self.end :]).decode()

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names it, whatever its line."""
        return self.path, self.statement, _squeeze(self.old), _squeeze(self.new)

    def __str__(self) -> str:
        old, new = _squeeze(self.old), _squeeze(self.new)
        return f"src/windrow/{self.path}:{self.line}\n    {self.statement}\n  - {old}\n  + {new}"


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def list_mutants(path: str, text: str) -> list[Mutant]:
    """All mutants of the file, in the order of the text; each compiles, and differs in its syntax tree."""
    tree = ast.parse(text)
    walk = _Walk(path, text, _called_at_import(tree))
    walk.visit_body(tree.body, "")
    found = {(one.start, one.end, one.new): one for one in walk.found}
    units = _list_units(tree, walk.starts)
    # Parentheses that an annotation of offsets cannot see are the usual reason why one does not compile.
    return [
        one
        for one in sorted(found.values(), key=lambda one: (one.start, one.end, one.new))
        if _compiles(one, text.encode(), units)
    ]


def _list_units(tree: ast.Module, starts: Sequence[int]) -> list[tuple[int, int]]:
    """The bytes of what can be compiled by itself: the lines of each statement of the file and of its classes, in order."""
    found: list[tuple[int, int]] = []
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.ClassDef):
            waiting += one.body
        found.append((starts[one.lineno - 1], starts[one.end_lineno or one.lineno]))
    return sorted(found, key=lambda span: span[1] - span[0])


def _compiles(mutant: Mutant, raw: bytes, units: Iterable[tuple[int, int]]) -> bool:
    start, end = next(span for span in units if span[0] <= mutant.start and mutant.end <= span[1])
    unit = (raw[start : mutant.start] + mutant.new.encode() + raw[mutant.end : end]).decode()
    try:
        compile(f"if True:\n{unit}" if unit[0].isspace() else unit, mutant.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


class _Walk:
    def __init__(self, path: str, text: str, called_at_import: frozenset[str] = frozenset()) -> None:
        self.found: list[Mutant] = []
        self._called_at_import = called_at_import
        self._path, self._raw = path, text.encode()
        # The offset at which each line begins, and that of the end.
        self.starts = [0]
        for line in self._raw.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self._function, self._lines, self._statement = "", (1, 1), ""
        # The last statements of functions that return what is as empty as None: where that matters, mypy notices.
        self._ends: set[ast.stmt] = set()

    # -- statements

    def visit_body(self, body: list[ast.stmt], function: str, prefix: str = "") -> None:
        """`function` is the outermost one around `body`, `prefix` the classes around it that belong to its name."""
        for statement in body:
            match statement:
                case ast.ClassDef(name=name):
                    self.visit_body(statement.body, function, f"{prefix}{name}.")
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._visit_function(statement, function, prefix)
                case _ if not _is_left_alone(statement):
                    self._visit(statement, function, prefix)

    def _visit_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, function: str, prefix: str
    ) -> None:
        self._function = function
        for default in filter(None, (*node.args.defaults, *node.args.kw_defaults)):
            self._lines = (default.lineno, default.end_lineno or default.lineno)
            self._statement = f"def {node.name}(... = {_squeeze(self._text(default))})"
            self._visit_expression(default)
        self._ends.update(_empty_ends(node.body))
        self.visit_body(node.body, function or f"{prefix}{node.name}")

    def _visit(self, statement: ast.stmt, function: str, prefix: str) -> None:
        expressions, bodies = _parts(statement)
        last = max((one.end_lineno or one.lineno for one in expressions), default=statement.lineno)
        if not bodies:
            last = statement.end_lineno or statement.lineno
        self._function, self._lines = function, (statement.lineno, last)
        self._statement = self._head(statement, expressions, bool(bodies))
        if function and statement not in self._ends and _is_removable(statement):
            self._add(statement, "pass", is_statement=True)
        for expression in expressions:
            self._visit_expression(expression)
        if isinstance(statement, ast.If | ast.While):
            self._negate(statement.test)
        for body in bodies:
            self.visit_body(body, function, prefix)

    def _head(self, statement: ast.stmt, expressions: list[ast.expr], is_compound: bool) -> str:
        start = self._offset(statement.lineno, statement.col_offset)
        if not is_compound:
            return _squeeze(self._text(statement))
        ends = [self._offset(one.end_lineno or 0, one.end_col_offset or 0) for one in expressions]
        end = max(ends, default=self.starts[statement.lineno])
        return _squeeze(self._raw[start:end].decode())

    # -- expressions

    def _visit_expression(self, expression: ast.AST) -> None:
        if isinstance(expression, ast.JoinedStr) or _is_type(expression) or _is_strict(expression):
            return
        for mutated in self._mutations(expression):
            self._add(expression, mutated)
        match expression:
            case ast.Compare():
                self._mutate_comparison(expression)
            case ast.IfExp() | ast.comprehension():
                tests = [expression.test] if isinstance(expression, ast.IfExp) else expression.ifs
                for test in tests:
                    self._negate(test)
        for child in ast.iter_child_nodes(expression):
            if not isinstance(
                child, ast.expr_context | ast.operator | ast.cmpop | ast.boolop | ast.unaryop | ast.arguments
            ):
                self._visit_expression(child)

    def _mutations(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.BoolOp(op=op, values=values):
                other: ast.boolop = ast.Or() if isinstance(op, ast.And) else ast.And()
                yield _unparse(ast.BoolOp(other, values))
                for place in range(len(values)):
                    rest = values[:place] + values[place + 1 :]
                    yield _unparse(rest[0] if len(rest) == 1 else ast.BoolOp(op, rest))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield _unparse(operand)
            case ast.BinOp(op=op, left=left, right=right) if type(op) in _ARITHMETIC:
                is_type = isinstance(op, ast.BitOr) and not self._function
                if not is_type and not any(map(_is_text, (left, right))):
                    yield _unparse(ast.BinOp(left, _ARITHMETIC[type(op)], right))
            case ast.Constant(value=bool() as value):
                yield str(not value)
            case ast.Constant(value=int() as value):
                # One more of many (a limit, seconds) is no change that a user could notice; twice as many is.
                yield str(value + 1 if value < _MANY else value * 2)
            case ast.Call(func=func, args=args, keywords=keywords):
                for keyword in keywords:
                    if not (keyword.arg is None or _is_strict(keyword) or _names_task(keyword, func)):
                        yield _unparse(ast.Call(func, args, [one for one in keywords if one is not keyword]))
                if isinstance(func, ast.Name) and func.id in _TWINS:
                    yield _unparse(ast.Call(ast.Name(_TWINS[func.id]), args, keywords))
            case (
                ast.Tuple(elts=elements, ctx=ast.Load())
                | ast.List(elts=elements, ctx=ast.Load())
                | ast.Set(elts=elements)
            ):
                for place in range(len(elements) if len(elements) > 1 else 0):
                    rest = elements[:place] + elements[place + 1 :]
                    yield _unparse(
                        type(node)(rest, ast.Load()) if not isinstance(node, ast.Set) else ast.Set(rest)
                    )
            case ast.Dict(keys=names, values=values):
                for place in range(len(names)):
                    yield _unparse(
                        ast.Dict(names[:place] + names[place + 1 :], values[:place] + values[place + 1 :])
                    )

    def _mutate_comparison(self, node: ast.Compare) -> None:
        left: ast.expr = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            start = self._offset(left.end_lineno or 0, left.end_col_offset or 0)
            end = self._offset(right.lineno, right.col_offset)
            between = self._raw[start:end].decode()
            old, new = _COMPARISONS[type(op)]
            pattern = r"\s+".join(map(re.escape, old.split()))
            if found := re.search(rf"(?<![<>=!\w]){pattern}(?![<>=\w])", between):
                prefix = len(between[: found.start()].encode())
                self._add_span(start + prefix, start + prefix + len(found[0].encode()), new, node)
            left = right

    def _negate(self, test: ast.expr) -> None:
        """Of a condition that no other operator changes."""
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.Constant | ast.NamedExpr) and not _is_not(
            test
        ):
            self._add(test, f"not {_unparse(test)}")

    # -- spans

    def _offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start = self._offset(node.lineno, node.col_offset)
        return self._raw[start : self._offset(node.end_lineno or 0, node.end_col_offset or 0)].decode()

    def _add(self, node: ast.AST, new: str, is_statement: bool = False) -> None:
        assert isinstance(node, ast.expr | ast.stmt)
        start = self._offset(node.lineno, node.col_offset)
        end = self._offset(node.end_lineno or 0, node.end_col_offset or 0)
        self._add_span(start, end, new if is_statement or not new else f"({new})", node)

    def _add_span(self, start: int, end: int, new: str, node: ast.expr | ast.stmt) -> None:
        old = self._raw[start:end].decode()
        if old != new and new:
            self.found.append(
                Mutant(
                    self._path,
                    node.lineno,
                    self._lines,
                    "" if self._function in self._called_at_import else self._function,
                    start,
                    end,
                    old,
                    new,
                    self._statement,
                )
            )


def _called_at_import(tree: ast.Module) -> frozenset[str]:
    """The functions of the file that make its constants."""
    outside = [
        one for one in tree.body if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    calls = (node for statement in outside for node in ast.walk(statement) if isinstance(node, ast.Call))
    return frozenset(call.func.id for call in calls if isinstance(call.func, ast.Name))


def _parts(statement: ast.stmt) -> tuple[list[ast.expr], list[list[ast.stmt]]]:
    """The expressions of its head that may change, and the bodies below it."""
    bodies: list[list[ast.stmt]] = []
    expressions: list[ast.expr] = []
    for name, value in ast.iter_fields(statement):
        if name in (
            "annotation",
            "returns",
            "targets",
            "target",
            "type_params",
            "type_comment",
            "decorator_list",
        ):
            continue
        for one in value if isinstance(value, list) else [value]:
            match one:
                case ast.expr():
                    expressions.append(one)
                case ast.withitem():
                    expressions.append(one.context_expr)
                case ast.ExceptHandler():
                    bodies.append(one.body)
                case ast.match_case():
                    expressions += [one.guard] if one.guard else []
                    bodies.append(one.body)
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            bodies.append(value)
    return expressions, bodies


def _is_left_alone(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Global() | ast.Nonlocal() | ast.Pass():
            return True
        case ast.Expr(value=ast.Constant()):
            return True  # a docstring, or `...`
        case ast.Expr(value=value):
            return _is_log(value) or _is_never(value)
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Attribute(attr="_log")]):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in ("__all__", "_log") or (
                isinstance(statement.value, ast.Call) and _is_type_variable(statement.value)
            )
    return False


def _is_type_variable(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in ("TypeVar", "ParamSpec", "NewType")


def _is_log(value: ast.expr) -> bool:
    match value:
        case ast.Call(func=ast.Attribute(value=owner, attr=verb)):
            return verb in _LOGGING and "log" in ast.unparse(owner).lower()
        case ast.Yield(value=ast.Call(func=ast.Name(id="Log"))):
            return True
    return False


def _is_never(value: ast.expr) -> bool:
    """Whether it is `assert_never(…)`, of which mypy shows that nothing comes there."""
    return (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "assert_never"
    )


def _empty_ends(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The last statements of a function, of each of its branches, that return what is as empty as None."""
    match body:
        case [*_, ast.Return(value=None) as last]:
            yield last
        case [*_, ast.Return(value=ast.Constant(value=value)) as last] if not value:
            yield last
        case [*_, ast.If(body=first, orelse=other)]:
            yield from (*_empty_ends(first), *_empty_ends(other))
        case [*_, ast.Match(cases=cases)]:
            for one in cases:
                yield from _empty_ends(one.body)
        case [*_, ast.With(body=inner) | ast.AsyncWith(body=inner)]:
            yield from _empty_ends(inner)
        case [*_, ast.Try(body=inner, handlers=handlers, orelse=other)]:
            for part in (*([] if other else [inner]), *(one.body for one in handlers), other):
                yield from _empty_ends(part)


def _is_removable(statement: ast.stmt) -> bool:
    """Without what a function ends with anyway, and without local names, whose absence is an error anywhere."""
    if not isinstance(statement, _REMOVED):
        return False
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    return True


def _is_type(node: ast.AST) -> bool:
    """A type with its arguments, as in an alias."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return False
    return node.value.id[0].isupper() or node.value.id in (
        "dict",
        "frozenset",
        "list",
        "set",
        "tuple",
        "type",
    )


def _is_strict(node: ast.AST) -> bool:
    """The keyword of zip, which is an assertion."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _names_task(keyword: ast.keyword, func: ast.expr) -> bool:
    """The name that a task has in a debugger."""
    called = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return keyword.arg == "name" and called in ("create_task", "start_in")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _unparse(node: ast.expr) -> str:
    return ast.unparse(ast.fix_missing_locations(node))


def on_lines(mutants: Iterable[Mutant], lines: frozenset[int]) -> list[Mutant]:
    """Those whose own line or statement begins on one of `lines`."""
    return [one for one in mutants if one.line in lines]
