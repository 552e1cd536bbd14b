#!/usr/bin/env python3
"""Draws what `weft bench queue --csv` has measured: makespan over its lower bound with its 95 % interval, and the share of
workers' time that went to waiting and idling, a group of bars for each graph, distribution and devices.

usage: queue_plot.py FILE.csv... OUT.png|OUT.svg|OUT.pdf      (needs matplotlib)
"""
import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def read(paths):
    rows = []
    for path in paths:
        with open(path, newline="") as f:
            rows += list(csv.DictReader(f))
    if not rows or "over_bound" not in rows[0]:
        sys.exit(f"{paths}: no lines of `weft bench queue --csv`")
    return rows


def number(row, name):
    return float(row[name]) if row[name] else float("nan")


def group_of(row):
    bytes_text = "" if row["work"] == "spin" else f", {row['work']} {row['bytes']} B"
    return f"{row['graph']}, {row['dist']}\n{row['mean_us']} us{bytes_text}\n{row['devices']}"


def draw(rows, out):
    groups = list(dict.fromkeys(map(group_of, rows)))
    queues = list(dict.fromkeys(r["queue"] for r in rows))
    width = 0.8 / len(queues)
    fig, (top, low) = plt.subplots(2, 1, figsize=(max(6, 2.2 * len(groups) + 3), 8), sharex=True)
    for i, queue in enumerate(queues):
        mine = [r for r in rows if r["queue"] == queue]
        x = [groups.index(group_of(r)) + (i - (len(queues) - 1) / 2) * width for r in mine]
        y = [number(r, "over_bound") for r in mine]
        bound = [number(r, "bound_us") for r in mine]
        below = [v - number(r, "median_low_us") / b for v, r, b in zip(y, mine, bound)]
        above = [number(r, "median_high_us") / b - v for v, r, b in zip(y, mine, bound)]
        top.bar(x, y, width * 0.9, yerr=[below, above], capsize=2, label=queue, color=f"C{i}")
        wait = [100 * number(r, "wait_share") for r in mine]
        idle = [100 * number(r, "idle_share") for r in mine]
        low.bar(x, wait, width * 0.9, color=f"C{i}")
        low.bar(x, idle, width * 0.9, bottom=wait, color=f"C{i}", alpha=0.4)
    top.axhline(1, color="black", linewidth=0.8)
    top.set_ylabel("makespan / lower bound")
    top.legend(fontsize="small")
    low.set_ylabel("waiting, idling (pale): % of workers' time")
    low.set_xticks(range(len(groups)), groups, fontsize="small")
    fig.suptitle(f"weft {rows[0]['version']}, commit {rows[0]['commit']}, {rows[0]['device']}", fontsize="small")
    fig.tight_layout()
    fig.savefig(out, dpi=150)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    draw(read(sys.argv[1:-1]), sys.argv[-1])
