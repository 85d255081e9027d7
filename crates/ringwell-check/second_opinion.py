#!/usr/bin/env python3
"""The rules C1 to C11 of docs/spec/checker.md a second time, written apart from the Rust ones.

Prints the rules that the history in the given files violates, one a line, and exits 1 if there are
any. With --each first, every file is a history of its own, and a line has all its rules. Judges, where it needs to, by plain comparison of everything with everything: it is for short
histories, to be held against `ringwell check`.
"""
import json
import sys
from collections import defaultdict
from itertools import combinations

MS = 1_000_000


def read(paths):
    lines = defaultdict(list)
    for path in paths:
        with open(path, "rb") as file:
            for raw in file:
                if raw.endswith(b"\n"):
                    line = json.loads(raw)
                    lines[line["k"]].append(line)
    return lines


def rid_of(params):
    return next((p[4:] for p in (params or "").split("&") if p.startswith("rid=")), None)


class Judge:
    def __init__(self, lines):
        self.lines, self.broken = lines, set()
        self.ends = defaultdict(list)
        for end in lines["ret"] + lines["unk"]:
            self.ends[end["id"]].append(end)
        self.rows = []  # (inv, ret, asked, got) of every answered row
        self.begun = {}  # When each attempt was sent, by its id.
        first = {}
        for inv in (inv for inv in lines["inv"] if "key" in inv):
            first[inv["key"]] = min(inv["t"], first.get(inv["key"], inv["t"]))
        for inv in lines["inv"]:
            ends = self.ends[inv["id"]]
            self.begun[inv["id"]] = inv["t"]
            if len(ends) == 1 and ends[0]["k"] == "ret":
                # A later attempt may get the first attempt's answer.
                inv = {**inv, "t": first.get(inv.get("key"), inv["t"])}
                pairs = zip(inv["rows"], ends[0].get("rows", []))
                self.rows += [(inv, ends[0], asked, got) for asked, got in pairs]
        self.own = [row for row in self.rows if "num" in row[3] and not row[3].get("ovf")]
        self.records = sorted((r for r in lines["jrn"] if "record" in r), key=lambda r: r["at_ms"])
        self.held = self.allocations(self.records)

    def blame(self, rule, broken):
        if broken:
            self.broken.add(rule)

    @staticmethod
    def allocations(records):
        held = defaultdict(list)
        for r in records:
            mine = held[r.get("number")]
            if r["record"] == "allocate":
                mine.append({**r, "until": r["at_ms"] + r["lockout_ms"], "released": False})
            elif r["record"] == "carry" and (not mine or mine[-1]["at_ms"] < r["allocated_at_ms"]):
                mine.append({**r, "at_ms": r["allocated_at_ms"], "until": r["locked_until_ms"],
                             "released": False, "copy": True})
            elif r["record"] in ("extend", "release"):
                last = next((a for a in reversed(mine) if not a.get("unseen")), None)
                if last:
                    last["until"] = r["until_ms"]
                    last["released"] |= r["record"] == "release"
                    last["unseen"] = r.get("allocated_at_ms") is not None and r["record"] == "release"
        held.pop(None, None)
        return held

    def versions(self, pool, begin, end):
        mine = sorted((c for c in self.lines["cfg"] if c["pool"] == pool), key=lambda c: c["t"])
        nexts = [c["t"] for c in mine[1:]] + [float("inf")]
        return [c for c, until in zip(mine, nexts) if c["t"] <= end and until >= begin]

    def faulty(self, begin, end):
        faults = sorted(self.lines["nem"], key=lambda f: f["t"])
        if not faults or end < faults[0]["t"]:
            return False
        return faults[-1].get("phase") != "end" or begin <= faults[-1]["t"] + 10_000 * MS

    def wall(self, t):
        clock = min(self.lines["clk"], key=lambda c: abs(c["t"] - t))
        return clock["wall_ms"] + (t - clock["t"]) // MS

    def double(self):
        by_number = defaultdict(list)
        for row in self.own:
            by_number[row[3]["num"]].append(row)
        for rows in by_number.values():
            for one, two in combinations(rows, 2):
                lives = [min((c["lifetime_ms"] for c in self.versions(r[2]["pool"], r[0]["t"],
                                                                     r[1]["t"])), default=0)
                         for r in (one, two)]
                gap = max(two[1]["t"] - one[0]["t"], one[1]["t"] - two[0]["t"])
                self.blame("C1", one[2]["rid"] != two[2]["rid"] and gap < min(lives) * MS)
        for mine in self.held.values():
            seen = [a for a in mine if not a.get("unseen")]
            for one, two in zip(seen, seen[1:]):
                self.blame("C1", two["at_ms"] < one["until"] and not two.get("copy"))

    def cut(self):
        """Moments before which a journal has dropped what it had."""
        firsts, begins = {}, {}
        for line in self.lines["jrn"]:
            owner = line.get("node"), line["shard"]
            if "first_frame" in line:
                firsts[owner] = min(line["first_frame"], firsts.get(owner, line["first_frame"]))
            elif "record" in line:
                begins.setdefault(owner, line["at_ms"])
        return {owner: begins.get(owner, 0) for owner, first in firsts.items() if first > 1}

    def joined(self):
        if not self.lines["jrn"]:
            return
        by_rid = defaultdict(list)
        for a in (a for mine in self.held.values() for a in mine):
            by_rid[rid_of(a["params"])].append(a)
        horizon = max(self.cut().values(), default=None)
        for inv, _, asked, got in self.own:
            found = [a for a in by_rid[asked["rid"]]
                     if (a["number"], a["pool"]) == (got["num"], asked["pool"])]
            old = horizon is not None and (not self.lines["clk"] or self.wall(inv["t"]) < horizon + 100)
            self.blame("C2", not found and not old)
            self.blame("C2", len(found) == 1 and found[0]["released"])
            self.blame("C2", len(found) > 1 and "key" not in inv)
        asked_pool = {a["rid"]: a["pool"] for inv in self.lines["inv"] for a in inv["rows"]}
        runs = {run["run"] for run in self.lines["run"]}
        owners = {(line.get("node"), line["shard"]) for line in self.lines["jrn"]}
        for rid, mine in by_rid.items():
            if not rid or rid.partition("-")[0] not in runs:
                continue
            rows = [row for row in self.rows if row[2]["rid"] == rid]
            for a in mine:
                self.blame("C3", asked_pool.get(rid) != a["pool"])
                kept = not a["released"] and all(r in self.own and r[3]["num"] != a["number"]
                                                 or r not in self.own for r in rows)
                excused = rows and ("key" in rows[0][0] or len(owners) > 1
                                    or self.faulty(rows[0][0]["t"], rows[0][1]["t"]))
                self.blame("C3", rows and kept and not excused and asked_pool.get(rid) == a["pool"])

    def pool(self):
        for inv, ret, asked, got in self.rows:
            live = self.versions(asked["pool"], self.begun[inv["id"]], ret["t"])
            if not live or "num" not in got:
                continue
            overflow = any(c.get("overflow") == got["num"] for c in live)
            member = any(a <= got["num"] <= b for c in live for a, b in c["numbers"])
            self.blame("C4", not overflow if got.get("ovf") else overflow or not member)

    def answers(self):
        ids = [inv["id"] for inv in self.lines["inv"]]
        self.blame("C5", len(ids) != len(set(ids)) or set(self.ends) - set(ids))
        self.blame("C5", any(len(ends) > 1 for ends in self.ends.values()))
        for inv in self.lines["inv"]:
            for ret in (r for r in self.ends.get(inv["id"], []) if r["k"] == "ret"):
                rids = [row.get("rid") for row in ret.get("rows", [])]
                wrong = ret["st"] == 200 and rids != [row["rid"] for row in inv["rows"]]
                bad = any(row.get("err") == "?" for row in ret.get("rows", []))
                self.blame("C5", wrong or bad or "bad" in ret)
        got = defaultdict(set)
        for inv, _, asked, answer in self.own:
            got[inv.get("key"), asked["rid"]].add(answer["num"])
        self.blame("C5", any(key and len(numbers) > 1 for (key, _), numbers in got.items()))

    def overflow(self):
        if not (self.lines["jrn"] and self.lines["clk"] and self.lines["cfg"]):
            return
        spans = [(a["pool"], a["at_ms"], a["until"]) for m in self.held.values() for a in m]
        holds = [(r["pool"], r["at_ms"], r["until_ms"]) for r in self.records
                 if r["record"] == "hold"]
        for inv, ret, asked, got in self.rows:
            if not got.get("ovf") or self.faulty(inv["t"], ret["t"]):
                continue
            pool, begin, end = asked["pool"], self.wall(inv["t"]) - 100, self.wall(ret["t"]) + 100
            size = min((sum(int(b) - int(a) + 1 for a, b in c["numbers"])
                        for c in self.lines["cfg"] if c["pool"] == pool), default=0)
            mine = [(a, b) for of, a, b in spans if of == pool]
            moments = [begin] + [a for a, _ in mine if begin <= a <= end]
            full = any(sum(a <= m <= b for a, b in mine) >= size for m in moments)
            held = any(of in (None, pool) and a <= end and b >= begin for of, a, b in holds)
            self.blame("C6", not full and not held)

    def journals(self):
        by_owner, owners = defaultdict(list), {}
        for line in self.lines["jrn"]:
            by_owner[line.get("node"), line["shard"]].append(line)
            if "first_frame" in line:
                mine = line.get("node"), line["journal"]
                self.blame("C8", owners.setdefault((line["shard"], line["epoch"]), mine) != mine)
        for owner, lines in by_owner.items():
            frames = [x for x in lines if "frame" in x and "record" not in x]
            records = [x for x in lines if "record" in x]
            for a, b in zip(frames, frames[1:]):
                self.blame("C7", b["frame"] != a["frame"] + 1 or b["epoch"] < a["epoch"]
                           or b["at_ms"] < a["last_at_ms"] or len(b["previous_hash"]) != 16)
            for a, b in zip(records, records[1:]):
                self.blame("C7", b["position"] <= a["position"] or b["at_ms"] < a["at_ms"])
            for f in frames:
                count = sum(r["frame"] == f["frame"] for r in records)
                self.blame("C7", count != f["records"] or f["last_at_ms"] < f["at_ms"])
            self.recovery(owner, records)

    @staticmethod
    def newest(records):
        newest = {}
        for r in records:
            mine = newest.get(r.get("number"))
            if r["record"] == "allocate":
                newest[r["number"]] = {"at_ms": r["at_ms"], "until": r["at_ms"] + r["lockout_ms"],
                                       "pool": r["pool"]}
            elif r["record"] == "carry":
                newest[r["number"]] = {"at_ms": r["allocated_at_ms"],
                                       "until": r["locked_until_ms"], "pool": r["pool"]}
            elif r["record"] in ("extend", "release") and mine:
                mine["until"] = r["until_ms"]
                if r["record"] == "release" and r.get("allocated_at_ms") is not None:
                    mine["at_ms"] = r["allocated_at_ms"]
        return newest

    def recovery(self, owner, records):
        states = [f for f in self.lines["fin"] if (f.get("node"), f["shard"]) == owner]
        if not states:
            return
        numbers = {f["number"]: f for f in states if "number" in f}
        newest = self.newest(records)
        self.blame("C11", set(newest) - set(numbers))
        self.blame("C11", set(numbers) - set(newest) and owner not in self.cut())
        for n in set(numbers) & set(newest):
            state, mine = numbers[n], newest[n]
            times = state["allocated_at_ms"], state["locked_until_ms"]
            self.blame("C11", times != (mine["at_ms"], mine["until"])
                       or state["pool"] not in (None, mine["pool"]))
        self.blame("C11", any(f["numbers"] != len(numbers) for f in states if "numbers" in f))

    def clients(self):
        deadlines = {run["run"]: run.get("deadline_ms") for run in self.lines["run"]}
        for inv in self.lines["inv"]:
            limit = deadlines.get(inv["id"].partition("-")[0])
            ends = self.ends.get(inv["id"], [])
            limits = [it for it in (limit, inv.get("deadline_ms")) if it is not None]
            if limits and len(ends) == 1 and ends[0]["k"] == "ret":
                self.blame("C9", ends[0]["t"] - inv["t"] > (min(limits) + 50) * MS)
        pools = {a["rid"]: a["pool"] for inv in self.lines["inv"] for a in inv["rows"]}
        damaged = any("damage" in line for line in self.lines["jrn"])
        for att in (att for att in self.lines["att"] if att["st"] == 200):
            if damaged and att.get("outcome") == "not_kept":
                continue
            found = att.get("outcome") == "allocated" and att["par"].get("rid") == att["rid"]
            other = att.get("pool") not in (None, pools.get(att["rid"], att.get("pool")))
            self.blame("C10", not found or other)


def broken(paths):
    judge = Judge(read(paths))
    for rule in (judge.double, judge.joined, judge.pool, judge.answers, judge.overflow,
                 judge.journals, judge.clients):
        rule()
    return sorted(judge.broken, key=lambda rule: int(rule[1:]))


def main(arguments):
    if arguments[:1] == ["--each"]:
        for path in arguments[1:]:
            print(*broken([path]))
        return 0
    rules = broken(arguments)
    print(*rules, sep="\n", end="\n" if rules else "")
    return 1 if rules else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
