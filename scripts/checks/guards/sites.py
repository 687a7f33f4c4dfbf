"""Guards of a package, found in its syntax tree, and its source with a switch at each of them.

A guard is a condition that decides on an error of the package (what it guards raises one, calls a function that may
raise one, or yields a reason why rows are bad), a condition that ends such a decision early, the answer of a function
that says yes or no, a call of a function that may raise, and a reason in a list of reasons why rows are bad. How it
may be broken:

negated      the condition, or the answer, is the opposite
left out     what the condition guards never happens; of a condition of Spark: for no row
operand      one operand of `and` or `or` in it is left out
dropped      the call, or the reason, is left out

Nothing is found by its line or file, so that a mutant keeps its name when code moves: function, way, text, and a
number where a function has the same guard twice.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
SWITCHES = "_switches"
"""Module of the copy that knows which mutant is on."""
RAISE_ERROR = "raise_error"
"""What raises in Spark."""


@dataclass(frozen=True)
class Mutant:
    """A guard, and the change that breaks it.

    `guard` is the mutant that stands for the condition where tests are looked up that reach it, and `seen` how it
    must have come out there for the change to make a difference; None: in any way. `source` is a hash of the
    function without its docstring, so that a better text is no other function.
    """

    function: str
    how: str
    text: str
    source: str
    module: str
    topic: str = ""
    guard: int = 0
    seen: bool | None = None
    ordinal: int = 1

    @property
    def key(self) -> str:
        """Its name, by which results and reasons are kept."""
        again = f" ({self.ordinal})" if self.ordinal > 1 else ""
        return f"{self.function}{again}: {self.how}: {self.text}"


@dataclass
class Package:
    """Functions of a package that may raise its errors, and functions that make Spark raise them."""

    errors: set[str] = field(default_factory=set)
    refusing: set[str] = field(default_factory=set)
    refusing_columns: set[str] = field(default_factory=lambda: {RAISE_ERROR})
    conditional_columns: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Functions that make a column raise where an argument holds: its position and name."""

    @classmethod
    def of(cls, sources: Iterable[str], errors: str) -> Package:
        """Look through all modules; `errors` is the source of the one with the errors."""
        instance = cls(
            errors={function.name for function in ast.walk(ast.parse(errors)) if isinstance(function, ast.ClassDef)}
        )
        trees = [ast.parse(source) for source in sources]
        functions = [function for tree in trees for function in ast.walk(tree) if isinstance(function, Function)]
        known = -1
        while known < len(instance.refusing) + len(instance.refusing_columns):
            known = len(instance.refusing) + len(instance.refusing_columns)
            for function in functions:
                if any(instance.is_refusal(statement) for statement in inside(function)):
                    instance.refusing.add(function.name)
                if any(
                    isinstance(node, ast.Return) and instance.makes_raise(node.value) for node in inside(function)
                ):
                    instance.refusing_columns.add(function.name)
        for function in functions:
            names = [argument.arg for argument in function.args.args]
            for node in inside(function):
                if instance.is_when(node) and isinstance(node.args[0], ast.Name) and node.args[0].id in names:
                    instance.conditional_columns[function.name] = (names.index(node.args[0].id), node.args[0].id)
        instance.refusing -= set(dir(builtins))
        return instance

    def is_refusal(self, node: ast.AST) -> bool:
        """Check whether a statement raises an error of the package, or calls a function only for its errors."""
        if isinstance(node, ast.Raise):
            return node.exc is None or bool(self.errors & list_names(node.exc))
        return (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and get_called_name(node.value) in self.refusing
        )

    def makes_raise(self, node: ast.AST | None) -> bool:
        """Check whether an expression is a column that raises."""
        return node is not None and any(
            isinstance(call, ast.Call) and get_called_name(call) in self.refusing_columns for call in ast.walk(node)
        )

    def is_when(self, node: ast.AST) -> bool:
        """Check whether an expression is a column that raises if its first argument is true."""
        return (
            isinstance(node, ast.Call)
            and get_called_name(node) == "when"
            and len(node.args) == 2
            and self.makes_raise(node.args[1])
        )


def get_called_name(node: ast.Call) -> str:
    """Return the last name of a called function."""
    return get_last_name(node.func)


def get_last_name(node: ast.expr) -> str:
    """Return the last name of a called function or a raised error."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def list_names(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def inside(function: Function) -> Iterator[ast.AST]:
    """Nodes of a function, without those of functions and classes in it."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            todo += ast.iter_child_nodes(node)


def expression(text: str, **parts: ast.expr) -> ast.expr:
    """Parse an expression in which names stand for others."""

    class Filled(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return parts.get(node.id, node)

    parsed: ast.expr = Filled().visit(ast.parse(text, mode="eval").body)
    return parsed


class Switched(ast.NodeTransformer):
    """Puts a switch at each guard of a module, and lists what the switches do; the first is number `first`."""

    def __init__(self, package: Package, module: str, first: int, topic: str = "") -> None:
        self.package, self.module, self.first, self.topic = package, module, first, topic
        self.mutants: list[Mutant] = []
        self._imported: set[str] = set()
        self._names: list[str] = []
        self._sources: list[str] = []
        self._functions: list[Function] = []

    def _add(self, how: str, node: ast.AST, guard: int = 0, seen: bool | None = None) -> int:
        number = self.first + len(self.mutants)
        mutant = Mutant(
            function=".".join(self._names), how=how, text=ast.unparse(node), source=self._sources[-1],
            module=self.module, topic=self.topic, guard=guard or number, seen=seen,
        )  # fmt: skip
        self.mutants.append(mutant)
        return number

    # --- where we are

    def visit_Import(self, node: ast.Import) -> ast.AST:
        self._imported |= {alias.asname or alias.name for alias in node.names}
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._names.append(node.name)
        self._sources.append(hashlib.sha256(ast.unparse(strip_docstring(node)).encode()).hexdigest()[:12])
        self._functions.append(node)
        node.body = [self.visit(statement) for statement in node.body]  # not its defaults and decorators
        for stack in (self._names, self._sources, self._functions):
            stack.pop()
        return node

    # --- guards

    def visit_If(self, node: ast.If) -> ast.AST:
        text, kind = node.test, self._kind_of(node) if self._functions else ""
        number = never = 0
        if kind:
            number = self._add("negated", text)
            never = self._add("left out", text, number, seen=kind != "refusal otherwise") if "refusal" in kind else 0
            call = f"{SWITCHES}.condition({number}, {never}, {kind == 'refusal otherwise'}, TEST)"
            node.test = expression(call, TEST=self._operands(text, number))
        return self.generic_visit(node)

    def _kind_of(self, node: ast.If) -> str:
        """Return the kind of guard that an `if` is; empty if it is not a guard."""
        if any(self._decides(statement) for statement in node.body):
            return "refusal"
        if any(self._decides(statement) for statement in node.orelse):
            return "refusal otherwise"
        if isinstance(node.body[-1], ast.Return | ast.Continue) and not node.orelse:
            return "early"
        return ""

    def _decides(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield | ast.YieldFrom):
            return self._gives_reasons()
        return self.package.is_refusal(node)

    def _gives_reasons(self) -> bool:
        function = self._functions[-1]
        notes = [function.returns, *(annotation.annotation for annotation in function.args.args)]
        notes += [annotation.annotation for annotation in inside(function) if isinstance(annotation, ast.AnnAssign)]
        return any("Reason" in ast.unparse(annotation) for annotation in notes if annotation is not None)

    def _operands(self, node: ast.expr, guard: int, positive: bool = True) -> ast.expr:
        """Put a switch at each operand; without it, `and` holds more often and `or` more seldom."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node.operand = self._operands(node.operand, guard, not positive)
        if not isinstance(node, ast.BoolOp):
            return node
        is_and = isinstance(node.op, ast.And)
        changed: list[ast.expr] = []
        for operand in node.values:
            if any(isinstance(child, ast.NamedExpr) for child in ast.walk(operand)):
                changed.append(operand)  # what follows needs its name
                continue
            number = self._add("operand", operand, guard, seen=is_and != positive)
            inner = self._operands(operand, guard, positive)
            off = f"{SWITCHES}.off({number})"
            changed.append(expression(f"{off} or ONE" if is_and else f"not {off} and ONE", ONE=inner))
        return ast.BoolOp(node.op, changed)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        returns = self._functions[-1].returns
        answers = isinstance(returns, ast.Name) and returns.id == "bool" and not isinstance(node.value, ast.Constant)
        number = self._add("negated", node.value) if answers and node.value is not None else 0
        if number and node.value is not None:
            value = self._operands(node.value, number)
            node.value = expression(f"{SWITCHES}.condition({number}, 0, False, VALUE)", VALUE=value)
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if not self._functions:
            return node
        is_reason = self._is_reason(node.value)
        if not (is_reason or self._is_check(node)):
            return self.generic_visit(node)
        number = self._add("dropped", node.value)
        self.generic_visit(node)
        if isinstance(node.value, ast.Yield):
            return ast.If(expression(f"not {SWITCHES}.dropped({number})"), [node], [])
        node.value = expression(f"{SWITCHES}.dropped({number}) or CALL", CALL=node.value)
        return node

    def _is_check(self, node: ast.Expr) -> bool:
        """Check whether a statement calls a function that may refuse; `os.write` is not ours."""
        if not (isinstance(node.value, ast.Call) and self.package.is_refusal(node)):
            return False
        function = node.value.func
        owner = function.value if isinstance(function, ast.Attribute) else None
        return not (isinstance(owner, ast.Name) and owner.id in self._imported)

    def _is_reason(self, node: ast.expr) -> bool:
        """Check whether a reason is yielded, or added to a list."""
        if isinstance(node, ast.Yield):
            return is_pair(node.value) and self._gives_reasons()
        adds = isinstance(node, ast.Call) and get_called_name(node) == "append" and len(node.args) == 1
        return adds and is_pair(node.args[0]) and self._gives_reasons()

    def visit_List(self, node: ast.List) -> ast.AST:
        if not (self._functions and isinstance(node.ctx, ast.Load) and self._gives_reasons()):
            return self.generic_visit(node)
        numbers = {
            index: self._add("dropped", element) for index, element in enumerate(node.elts) if is_reason(element)
        }
        self.generic_visit(node)
        for index, number in numbers.items():
            replacement = expression(f"{SWITCHES}.kept({number}, ONE)", ONE=node.elts[index])
            node.elts[index] = ast.Starred(replacement, ast.Load())
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        index, name = self.package.conditional_columns.get(
            get_called_name(node), (0, "") if self.package.is_when(node) else (-1, "")
        )
        if index < 0 or not self._functions or self._functions[-1].name in self.package.conditional_columns:
            return self.generic_visit(node)
        keyword = next((argument for argument in node.keywords if argument.arg == name), None)
        passed = keyword.value if keyword is not None else node.args[index] if index < len(node.args) else None
        if passed is None or any(isinstance(argument, ast.Starred) for argument in node.args[: index + 1]):
            return self.generic_visit(node)
        number = self._add("left out", passed)
        self.generic_visit(node)
        passed = keyword.value if keyword is not None else node.args[index]
        switched = expression(f"{SWITCHES}.column({number}, GIVEN)", GIVEN=passed)
        if keyword is not None:
            keyword.value = switched
        else:
            node.args[index] = switched
        return node


def is_pair(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Tuple) and len(node.elts) == 2


def is_reason(node: ast.expr) -> bool:
    """Check whether an element of a list is a reason: its name, and a condition."""
    return is_pair(node) and isinstance(node.elts[0], ast.Constant) and isinstance(node.elts[0].value, str)


def strip_docstring(node: ast.FunctionDef) -> ast.FunctionDef:
    """Return the function without its docstring."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    changed = ast.FunctionDef(**{**dict(ast.iter_fields(node)), "body": body or [ast.Pass()]})
    return ast.copy_location(changed, node)


def insert_switches(
    source: str, package: Package, name: str, *, module: str = "", first: int = 1, topic: str = ""
) -> tuple[str, list[Mutant]]:
    """Return the source of a module with switches, and its mutants; `name` is the name of the package."""
    tree = ast.parse(source)
    switched = Switched(package, module, first, topic)
    tree = switched.visit(tree)
    index = next(
        (n for n, statement in enumerate(tree.body) if not (is_docstring(statement) or is_future(statement))),
        len(tree.body),
    )  # fmt: skip
    tree.body.insert(index, ast.parse(f"import {name}.{SWITCHES} as {SWITCHES}").body[0])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n", switched.mutants


def is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def number_mutants(mutants: Sequence[Mutant]) -> dict[int, Mutant]:
    """Return mutants by the number of their switch; mutants of the same name are numbered."""
    times: Counter[str] = Counter()
    mutants_by_number = {}
    for number, mutant in enumerate(mutants, start=1):
        times[mutant.key] += 1
        mutants_by_number[number] = replace(mutant, ordinal=times[mutant.key])
    return mutants_by_number


def break_package(root: Path, name: str, topics: Mapping[str, Sequence[str]], errors: str) -> dict[int, Mutant]:
    """Put switches into the modules of all topics below a folder, in place; a module counts for its first topic.

    Raises a LookupError for a pattern without modules.
    """
    files = sorted((root / name).rglob("*.py"))
    package = Package.of([path.read_text(encoding="utf-8") for path in files], (root / errors).read_text("utf-8"))
    mutants: list[Mutant] = []
    done: set[Path] = set()
    for topic, patterns in topics.items():
        for pattern in patterns:
            paths = sorted((root / name).glob(pattern))
            if not paths:
                raise LookupError(f"topic {topic!r} names {pattern!r}, which is no module of {name}.")
            for path in paths:
                if path in done:
                    continue
                done.add(path)
                module = str(path.relative_to(root))
                text, new_mutants = insert_switches(
                    path.read_text(encoding="utf-8"),
                    package,
                    name,
                    module=module,
                    first=len(mutants) + 1,
                    topic=topic,
                )
                path.write_text(text, encoding="utf-8")
                mutants += new_mutants
    return number_mutants(mutants)
