"""Place a graph that `weft plan --dump graph.json` or `weft place --export json graph.json` wrote: python3 place.py graph.json DEVICES > place.csv

Each task, in a topological order, goes to the device where it would end first: one worker a device, and a byte takes
1/450 ns from one device to another."""
import csv
import json
import sys
from graphlib import TopologicalSorter

with open(sys.argv[1]) as file:
    graph = json.load(file)
devices = int(sys.argv[2])
inputs = {task["id"]: [] for task in graph["tasks"]}
for edge in graph["edges"]:
    inputs[edge["to"]].append(edge)


def cost(task, device):
    """ns on that device; infinite where it can't run"""
    c = task["cost"][device] if isinstance(task["cost"], list) else task["cost"]
    return float("inf") if c is None else c


tasks = {task["id"]: task for task in graph["tasks"]}
free, end, where = [0.0] * devices, {}, {}
for name in TopologicalSorter({t: [e["from"] for e in inputs[t]] for t in tasks}).static_order():
    ends = []
    for d in range(devices):
        ready = [end[e["from"]] + (where[e["from"]] != d) * e.get("bytes", 0) / 450 for e in inputs[name]]
        ends.append(max([free[d]] + ready) + cost(tasks[name], d))
    where[name] = ends.index(min(ends))
    end[name] = free[where[name]] = min(ends)
writer = csv.writer(sys.stdout)
writer.writerow(["task", "device"])
writer.writerows(where.items())
