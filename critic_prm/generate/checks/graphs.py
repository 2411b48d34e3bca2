"""Find the first wrong step of a graph algorithm in English by comparing its claims with networkx."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import ConfigError, InputError
from critic_prm.generate.checks.logic import unnumbered
from critic_prm.generate.family import Finding
from critic_prm.registry import install

NAME = r"([A-Z][a-z]*)"


def examine(trajectory: Trajectory) -> Finding:
    """Return the first step with a false claim. The wording selects the algorithm to check."""
    try:
        import networkx
    except ImportError as error:
        raise ConfigError(f"checking with a solver needs z3 and networkx: {install('formal')}") from error
    problem, steps = trajectory.problem, [unnumbered(text) for text in trajectory.texts]
    if "shortest way" in problem:
        return Finding(_shortest(networkx, problem, steps))
    if "cycle" in problem.rsplit(". ", 1)[1]:
        return Finding(_cycle(networkx, problem, steps))
    if re.search(rf"from {NAME} to {NAME}\?$", problem):
        return Finding(_reach(networkx, problem, steps))
    if steps[-1].startswith("The order is "):
        return Finding(_order(networkx, problem, steps))
    raise InputError(trajectory.id, f"{problem[-80:]!r} is not a question that this checker can read")


def _claims(said: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(rf"{NAME} (\d+)", said)}


def _shortest(networkx: Any, problem: str, steps: list[str]) -> int:
    """Open distances after each step must be those of the shortest paths through settled places only."""
    told, asked = problem.rsplit(". ", 1)
    roads = networkx.Graph()
    roads.add_weighted_edges_from((a, b, int(n)) for a, b, n in re.findall(rf"{NAME}(?:-| to | and ){NAME}:? (\d+)", told))
    start, target = re.findall(rf"from {NAME} to {NAME}", asked)[0]
    truly = networkx.single_source_dijkstra_path_length(roads, start)
    settled: list[str] = []
    waiting: Mapping[str, int] = {start: 0}
    for index, text in enumerate(steps):
        if "shortest way" in text:
            place, stated = text.split()[0], int(text.split()[-3])
            right = place == target and stated == truly[target] and waiting[place] == min(waiting.values())
            return -1 if right else index
        head, rest = text.split(". ", 1)
        place, distance = re.findall(NAME, head)[-1], int(re.findall(r"\d+", head)[-1])
        right = waiting.get(place) == distance == min(waiting.values()) == truly[place]
        for name, base, length, total in re.findall(rf"{NAME}: (\d+) \+ (\d+) = (\d+)", rest):
            right = right and roads.has_edge(place, name) and int(length) == roads[place][name]["weight"]
            right = right and int(base) == distance and int(base) + int(length) == int(total)
        settled.append(place)
        waiting = {}
        for name in set(roads) - set(settled):
            inner = roads.subgraph([*settled, name])
            if networkx.has_path(inner, start, name):
                waiting[name] = networkx.dijkstra_path_length(inner, start, name)
        if not right or _claims(re.split("[Oo]pen: ", rest)[1]) != waiting:
            return index
    return len(steps) - 1


def _reach(networkx: Any, problem: str, steps: list[str]) -> int:
    told, asked = problem.rsplit(". ", 1)
    links = networkx.DiGraph() if "->" in told else networkx.Graph()
    links.add_edges_from(re.findall(rf"{NAME}(?: -> |-){NAME}", told))
    start, target = re.findall(rf"from {NAME} to {NAME}", asked)[0]
    links.add_nodes_from((start, target))
    reached = {start}
    for index, text in enumerate(steps):
        if text.startswith("So"):
            return -1 if ("no way" not in text) == networkx.has_path(links, start, target) else index
        claim, stated = text.split(". Reached so far: ")
        place = re.findall(rf"from {NAME}", claim)[0]
        truly = set(links[place]) - reached
        said = set(re.findall(NAME, claim.split(": ", 1)[1])) if ": " in claim else set()
        reached |= said
        if said != truly or set(re.findall(NAME, stated)) != reached:
            return index
    return len(steps) - 1


def _order(networkx: Any, problem: str, steps: list[str]) -> int:
    """Free tasks are those without a predecessor in the remaining graph; the alphabetically first one must be taken."""
    needs = networkx.DiGraph()
    for clause in problem.split(": ", 1)[1].split(". ")[0].split("; "):
        task, *before = re.findall(NAME, clause)
        needs.add_node(task)
        needs.add_edges_from((other, task) for other in before)
    truly = list(networkx.lexicographical_topological_sort(needs))
    *taken, last = steps
    for index, text in enumerate(taken):
        free, take = text.removesuffix(".").split(". Take ")
        rest = needs.subgraph(truly[index:])
        bare = sorted(name for name, found in rest.in_degree() if not found)
        if re.findall(NAME, free)[1:] != bare or take != truly[index]:
            return index
    return -1 if re.findall(NAME, last.removeprefix("The order is ")) == truly else len(taken)


def _cycle(networkx: Any, problem: str, steps: list[str]) -> int:
    arrows = networkx.DiGraph(re.findall(rf"{NAME} -> {NAME}", problem))
    cyclic = not networkx.is_directed_acyclic_graph(arrows)
    rest = arrows.copy()
    for index, text in enumerate(steps):
        if "cycle" in text:
            bound = all(found for _, found in rest.in_degree())
            said = set(re.findall(NAME, text.split(", so ")[0])[1:])
            return -1 if said == set(rest) and bound and ("a cycle" in text) == cyclic else index
        gone = re.findall(NAME, text.split("Take ")[1])[0]
        bare = rest.in_degree(gone) == 0
        rest.remove_node(gone)
        if (
            not bare
            or ("Left: " in text) != bool(rest)
            or (rest and set(re.findall(NAME, text.split("Left: ")[1])) != set(rest))
        ):
            return index
    return len(steps) - 1
