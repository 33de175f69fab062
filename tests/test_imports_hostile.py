"""Hostile input files: what each is answered with, an error of one line or a line of the report."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from import_command import ImportCommand


class Case(NamedTuple):
    what: str
    args: str  # F: the file; the first word is the format
    content: str | bytes | Mapping[str, str | bytes]  # of `in.csv`, or of several files
    says: str  # regular expression in the error (`error: ...`) or in the report


PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
P1, P2 = "2017-10-01 00:00:00,600,1,600,v\n", "2017-10-01 01:00:00,900,2,1800,v\n"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration\n"
H1 = "1,u,v,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 19:41:01,3600\n"
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
)
O1 = "p0,1,1,1,1000,,LS,Running,0,500,10\n"
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
T1 = "0,1,0,606,vgg19,164,30\n"
GAVEL7 = "LM (batch size 5)\tpython main.py\t--steps\t1\t1000\t0.000000\t1\n"
PRICE = "time,price\n"
DAY = "".join(f"2024-01-01 {h:02d}:00,{10 + h}\n" for h in range(24))
# 31 March 2024: Berlin has no 02:00; 27 October 2024: it has 02:00 twice.
SPRING = "".join(f"2024-03-31 {h:02d}:00,{h}\n" for h in range(24))
AUTUMN = "".join(f"2024-10-27 {h:02d}:00,{h}\n" for h in [0, 1, 2, 2, *range(3, 24)])
ENTSOE = '"MTU (CET/CEST)","Area","Sequence","Day-ahead Price (EUR/MWh)"\n'
SKY = (
    "src_region,src_tier,src_instance_class,dst_region,dst_tier,dst_instance_class,"
    "throughput_received,success\n"
)
SKY_A = "a,PREMIUM,x,b,PREMIUM,x,2000000000,True\n"
SKY_B = "b,PREMIUM,x,a,PREMIUM,x,1000000000,True\n"
LAT = "src_region,src_tier,dst_region,dst_tier,min_rtt,avg_rtt,max_rtt\n"
NET = "--gpus 8 --price 0.1"
GEN = "prices F --time time --price price --unit USD/MWh --region EU-West"
UTC = f"{GEN} --tz UTC"
BERLIN = f"{GEN} --tz Europe/Berlin"


def graph(edges: str, directed: str = "undirected") -> dict[str, str]:
    nodes = "".join(f'<node id="{n}"><data key="l">{n.upper()}</data></node>' for n in "abcd")
    return {
        "in.graphml": '<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        '<key attr.name="label" attr.type="string" for="node" id="l"/>'
        '<key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="s"/>'
        f'<graph edgedefault="{directed}">{nodes}{edges}</graph></graphml>'
    }


def edge(a: str, b: str, bits: str | None = "1e10") -> str:
    speed = "" if bits is None else f'<data key="s">{bits}</data>'
    return f'<edge source="{a}" target="{b}">{speed}</edge>'


RING = edge("a", "b") + edge("b", "c") + edge("c", "d") + edge("d", "a")

CASES = [
    # files that are no data
    Case("missing file", "tiresias no.csv", "", r"error: no\.csv: cannot read: No such file"),
    Case("a folder", "tiresias .", "", r"error: \.: cannot read: Is a directory"),
    Case("empty", "tiresias F", "", r"error: in\.csv: is empty"),
    Case("only a BOM", "tiresias F", b"\xef\xbb\xbf\r\n", r"error: in\.csv: is empty"),
    Case("header only", "tiresias F", TIRESIAS, r"error: in\.csv: holds a header and no rows"),
    Case(
        "Git LFS pointer",
        "philly F --tz UTC",
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        r"error: in\.csv: is a Git LFS pointer, not the data",
    ),
    Case("gzip", "tiresias F", b"\x1f\x8b\x08\0\0", r"error: in\.csv: is not text \(compressed"),
    Case("UTF-16", "tiresias F", "a,b\n1,2\n".encode("utf-16"), r"error: .*is not text"),
    Case(
        "Latin-1",
        "tiresias F",
        TIRESIAS.encode() + b"caf\xe9,1,0,1,m,60,1\n",
        r"error: in\.csv: not utf-8-sig text .*see --encoding",
    ),
    Case(
        "Latin-1, said so",
        "tiresias F --encoding latin-1",
        TIRESIAS.encode() + b"caf\xe9,1,0,1,m,60,1\n",
        r"rows: 1 read, 1 kept",
    ),
    Case("unknown encoding", "tiresias F --encoding nope", TIRESIAS + T1, r"error: .*nope"),
    Case(
        "a row too long",
        "tiresias F",
        TIRESIAS + T1 + "1,1,0,606,vgg19,164,30,9\n",
        r"error: in\.csv: not a regular table: Expected 7 fields in line 3, saw 8",
    ),
    Case(
        "every row too long",
        "tiresias F",
        TIRESIAS + T1.strip() + ",9\n",
        r"error: in\.csv: not a regular table: ",
    ),
    Case("open quote", "tiresias F", TIRESIAS + '"0,1,0\n', r"error: .*not a regular table: EOF"),
    Case(
        "a row too short",
        "tiresias F",
        TIRESIAS + T1 + "1,1,0\n",
        r"rejected: 1 no end or duration \(first: line 3",
    ),
    Case(
        "column twice",
        "tiresias F",
        "job_id,num_gpu,num_gpu,submit_time,duration\n0,1,1,0,60\n",
        r"error: in\.csv: the header has 'num_gpu' twice",
    ),
    Case(
        "column misspelt",
        "tiresias F",
        "job_id,num_gpus,submit_time,duration\n0,1,0,60\n",
        r"error: in\.csv: no column 'num_gpu'; did you mean 'num_gpus'\?",
    ),
    Case(
        "semicolons",
        "tiresias F",
        "job_id;num_gpu;submit_time;duration\n0;1;0;60\n",
        r"error: .*the header has no comma; is it --delimiter ';'\?",
    ),
    Case(
        "semicolons, said so",
        "tiresias F --delimiter ;",
        "job_id;num_gpu;submit_time;duration\n0;1;0;60\n",
        r"rows: 1 read, 1 kept",
    ),
    Case("long delimiter", "tiresias F --delimiter ab", TIRESIAS + T1, r"error: --delimiter: must"),
    # tables as they come
    Case(
        "BOM, CRLF, blank lines",
        "tiresias F",
        ("\ufeff" + TIRESIAS + T1 + "\n" + ",,,,,,\n" + T1 + "\n").replace("\n", "\r\n"),
        r"rows: 2 read, 2 kept, 3 blank lines",
    ),
    Case(
        "the same id twice",
        "tiresias F",
        TIRESIAS + T1 + T1,
        r"changed: 1 repeated job ids made different by #2",
    ),
    Case(
        "not sorted",
        "philly-csv F --tz UTC",
        PHILLY + P2 + P1,
        r"found: .*arrivals out of order 1",
    ),
    # times of jobs
    Case(
        "no zone",
        "philly-csv F",
        PHILLY + P1,
        r"error: in\.csv column timestamp: the times state no offset from UTC, such as '2017-10-01",
    ),
    Case(
        "unknown zone",
        "philly-csv F --tz Europe/Belrin",
        PHILLY + P1,
        r"error: --tz: unknown time zone 'Europe/Belrin'; did you mean 'Europe/Berlin'\?",
    ),
    Case(
        "zone and offsets",
        "philly-csv F --tz UTC",
        PHILLY + P1.replace("00:00:00", "00:00:00+01:00"),
        r"error: .*the times state their offsets from UTC: leave out --tz UTC",
    ),
    Case(
        "offsets in some rows",
        "philly-csv F --tz UTC",
        PHILLY + P1.replace("00:00:00", "00:00:00Z") + P2,
        r"error: .*some times state an offset .* do not, such as '2017-10-01 00:00:00Z' and ",
    ),
    Case(
        "a stray offset",
        "philly-csv F --tz UTC",
        PHILLY + P1 + P2.replace("01:00:00", "01:00:00-1"),
        r"error: .*some times state an offset .* do not, such as '2017-10-01 01:00:00-1' and ",
    ),
    Case(
        "times of another format",
        "philly-csv F --tz UTC",
        PHILLY + "01/10/2017 00:00,600,1,600,v\n",
        r"error: .*not times such as 2024-03-01 00:00:00: '01/10/2017 00:00'; see --time-format",
    ),
    Case(
        "times of another format, said so",
        "philly-csv F --tz UTC --time-format %d/%m/%Y_%H:%M",
        PHILLY + "01/10/2017_00:00,600,1,600,v\n",
        r"span: from 2017-10-01T00:00:00Z",
    ),
    Case(
        "one time unreadable",
        "philly-csv F --tz UTC",
        PHILLY + P1 + "yesterday,600,1,600,v\n",
        r"rejected: 1 no arrival time \(first: line 3",
    ),
    Case(
        "a local time that is skipped",
        "philly-csv F --tz America/Los_Angeles",
        PHILLY + "2017-03-12 02:30:00,600,1,600,v\n",
        r"error: .*1 local times that America/Los_Angeles skips, such as 2017-03-12 02:30:00",
    ),
    Case(
        "a local time that comes twice",
        "philly-csv F --tz America/Los_Angeles",
        PHILLY + "2017-11-05 01:30:00,600,1,600,v\n",
        r"error: .*1 local times that the clock shows twice, such as 2017-11-05 01:30:00",
    ),
    Case(
        "a zone where there is none to give",
        "tiresias F --tz UTC",
        TIRESIAS + T1,
        r"error: No such option: --tz",
    ),
    # jobs that are odd
    Case(
        "duration is not a number",
        "philly-csv F --tz UTC",
        PHILLY + P1 + P2.replace("900", "long"),
        r"rejected: 1 no end",
    ),
    Case(
        "infinite duration",
        "philly-csv F --tz UTC",
        PHILLY + P1 + P2.replace("900", "inf"),
        r"rejected: 1 no end",
    ),
    Case(
        "duration of zero",
        "philly-csv F --tz UTC",
        PHILLY + P1 + P2.replace("900,2,1800", "0,2,0"),
        r"rejected: 1 duration of zero",
    ),
    Case(
        "duration of zero, to be kept",
        "philly-csv F --tz UTC --zero-duration keep",
        PHILLY + P1 + P2.replace("900,2,1800", "0,2,0"),
        r"rows: 2 read, 2 kept",
    ),
    Case(
        "negative duration",
        "philly-csv F --tz UTC",
        PHILLY + P1 + P2.replace("900,2,1800", "-5,2,-10"),
        r"rejected: 1 ends before it starts",
    ),
    Case(
        "GPUs negative",
        "philly-csv F --tz UTC",
        PHILLY + P1 + P2.replace("900,2", "900,-2"),
        r"rejected: 1 GPU count unreadable",
    ),
    Case(
        "gpu_time contradicts",
        "philly-csv F --tz UTC",
        PHILLY + P1 + P2.replace("1800", "999"),
        r"warning: 1 rows: gpu_time differs from duration \* num_gpus",
    ),
    Case(
        "more GPUs than there are",
        "philly-csv F --tz UTC",
        PHILLY + P1 + P2.replace(",2,", ",4096,"),
        r"rejected: 1 more GPUs than the 336 of the cluster \(first: line 3\)",
    ),
    Case(
        "more GPUs than there are, to be capped",
        "philly-csv F --tz UTC --too-large cap",
        PHILLY + P1 + P2.replace(",2,", ",672,"),
        r"changed: 1 jobs capped to the 336 GPUs of the cluster, with the same GPU-seconds",
    ),
    Case(
        "nothing left",
        "tiresias F",
        TIRESIAS + "0,0,0,606,vgg19,164,30\n",
        r"error: in\.csv: no job is left of 1 rows; zero-GPU job: 1",
    ),
    Case("zero GPUs", "openb F", OPENB + O1 + O1.replace("1,1000", "0,0"), r"rejected: 1 zero-GPU"),
    Case(
        "zero GPUs, to be kept",
        "openb F --zero-gpu keep",
        OPENB + O1 + O1.replace("p0", "p1").replace("1,1000", "0,0"),
        r"changed: 1 zero-GPU jobs kept as jobs of one GPU",
    ),
    Case(
        "zero GPUs, an error",
        "openb F --zero-gpu error",
        OPENB + O1.replace("1,1000", "0,0"),
        r"error: in\.csv: 1 rows: zero-GPU job \(first: line 2: p0",
    ),
    Case(
        "part of a GPU",
        "openb F",
        OPENB + O1.replace("1000", "460"),
        r"changed: 1 fractional GPUs rounded up to whole ones \(first: line 2: p0, 0\.46\)",
    ),
    Case(
        "part of a GPU, to be dropped",
        "openb F --fractional drop",
        OPENB + O1 + O1.replace("1000", "460"),
        r"rejected: 1 fractional GPUs",
    ),
    Case(
        "never started",
        "openb F",
        OPENB + O1 + O1.replace(",500,10", ",500,"),
        r"rejected: 1 never started",
    ),
    Case(
        "no end, to end with the trace",
        "helios F --tz UTC --missing-end censor",
        HELIOS + H1 + H1.replace("2020-06-09 19:41:01,3600", ",").replace("1,u", "2,u"),
        r"changed: 1 missing ends set to the last instant of the trace",
    ),
    Case(
        "no end, an error",
        "helios F --tz UTC --missing-end error",
        HELIOS + H1 + H1.replace("2020-06-09 19:41:01,3600", ","),
        r"error: in\.csv: 1 rows: no end",
    ),
    Case(
        "duration contradicts the times",
        "helios F --tz UTC",
        HELIOS + H1.replace("3600", "3700"),
        r"warning: 1 rows: duration differs from end - start by more than 1 s; end - start is used",
    ),
    Case(
        "strict",
        "openb F --strict",
        OPENB + O1 + O1.replace("1,1000", "0,0").replace("p0", "p1"),
        r"error: --strict: rows were rejected or changed unasked: zero-GPU job: 1",
    ),
    Case(
        "strict, but asked for",
        "openb F --strict --zero-gpu drop",
        OPENB + O1 + O1.replace("1,1000", "0,0").replace("p0", "p1"),
        r"rows: 2 read, 1 kept",
    ),
    Case(
        "state nobody has",
        "helios F --tz UTC --state DONE",
        HELIOS + H1,
        r"error: --state DONE: no job has it; known: COMPLETED",
    ),
    Case("option misspelt", "openb F --zero-gpu away", OPENB + O1, r"error: --zero-gpu: must be"),
    # other layouts
    Case(
        "jobs, no columns named",
        "jobs F --tz UTC --arrival at --gpu-count n",
        "at,n,s\n2024-01-01,1,60\n",
        r"error: in\.csv: say which columns hold what, .*; it has: at, n, s",
    ),
    Case(
        "jobs, duration and times",
        "jobs F --tz UTC --arrival at --gpu-count n --duration s --started at --ended at",
        "at,n,s\n2024-01-01,1,60\n",
        r"error: in\.csv: say which columns hold what, ",
    ),
    Case("not JSON", "philly F --tz UTC", "[{", r"error: in\.csv: not valid JSON: "),
    Case("JSON, no list", "philly F --tz UTC", "{}", r"error: .*must be a JSON list of jobs"),
    Case(
        "null times, no attempts",
        "philly F --tz UTC",
        '[{"jobid": "a", "submitted_time": "2017-10-01 00:00:00", "attempts": []},'
        ' {"jobid": "b", "submitted_time": null, "attempts": [{"start_time": "None",'
        ' "end_time": "", "detail": [{"ip": "m", "gpus": ["g"]}]}]},'
        ' {"jobid": "c", "submitted_time": "2017-10-01 00:00:00", "attempts": [{"start_time":'
        ' "2017-10-01 00:01:00", "end_time": "2017-10-01 00:02:00", "detail":'
        ' [{"ip": "m", "gpus": ["g"]}]}]}]',
        r"rows: 3 read, 1 kept\nrejected: 1 no attempts .*\nrejected: 1 no arrival time",
    ),
    Case(
        "still running",
        "philly F --tz UTC",
        '[{"jobid": "c", "submitted_time": "2017-10-01 00:00:00", "attempts": [{"start_time":'
        ' "2017-10-01 00:01:00", "end_time": null, "detail": [{"ip": "m", "gpus": ["g"]}]}]}]',
        r"error: in\.csv: no job is left of 1 rows; no end or duration: 1",
    ),
    Case("gavel, 8 fields", "gavel F --steps-per-s 1", GAVEL7.strip() + "\tx\n", r"error: .*got 8"),
    Case("gavel, no rate", "gavel F", GAVEL7, r"error: gavel: a trace has steps, no durations"),
    Case(
        "gavel, unknown GPU",
        "gavel F --throughputs t.json --worker-type h100",
        {"in.csv": GAVEL7, "t.json": '{"v100": {}}'},
        r"error: --worker-type: must be one in t\.json, got 'h100'; known: v100",
    ),
    Case(
        "pai, no header file",
        "pai job_table.csv task_table.csv",
        {"job_table.csv": "j,i,u,Terminated,0,9\n", "task_table.csv": "j,t,1,T,0,9,1,1,100,V\n"},
        r"error: job_table\.csv: comes without a header row: give its header file too",
    ),
    # prices
    Case(
        "no columns named",
        "prices F --tz UTC --unit USD/MWh",
        PRICE + DAY,
        r"error: in\.csv: say which columns hold what, --time COLUMN --price COLUMN; it has: time,",
    ),
    Case(
        "no unit",
        "prices F --time time --price price --tz UTC --region EU-West",
        PRICE + DAY,
        r"error: in\.csv: states no unit and currency: say --unit",
    ),
    Case(
        "no currency",
        UTC.replace("USD/MWh", "MWh"),
        PRICE + DAY,
        r"error: --unit: must be CURRENCY/kWh or CURRENCY/MWh",
    ),
    Case(
        "no rate",
        UTC.replace("USD/MWh", "EUR/MWh"),
        PRICE + DAY,
        r"error: in\.csv: prices are in EUR: say --usd-rate",
    ),
    Case("a rate for USD", f"{UTC} --usd-rate 1.1", PRICE + DAY, r"error: --usd-rate 1\.1: .*USD"),
    Case(
        "unit contradicts",
        "sustain-cluster F --tz UTC --region EU-West --unit EUR/kWh",
        "Datetime,Price (EUR/MWh)\n" + DAY,
        r"error: --unit EUR/kWh: the header of in\.csv states EUR/MWh",
    ),
    Case("naive times", GEN, PRICE + DAY, r"error: .*the times state no offset from UTC"),
    Case(
        "factor 1000",
        UTC.replace("MWh", "kWh"),
        PRICE + DAY,
        r"warning: .*the median price is 21\.5 USD/kWh: is the unit right\?",
    ),
    Case(
        "a gap",
        UTC,
        PRICE + DAY.replace("2024-01-01 05:00,15\n", "").replace("2024-01-01 06:00,16\n", ""),
        r"error: .*steps without a value: 2 in 1 gaps, the first at 2024-01-01T05:00:00Z",
    ),
    Case(
        "a gap, held",
        f"{UTC} --gaps hold",
        PRICE + DAY.replace("2024-01-01 05:00,15\n", ""),
        r"changed: 1 steps filled \(the last value held\)",
    ),
    Case(
        "the same row twice",
        UTC,
        PRICE + DAY + "2024-01-01 05:00,15\n",
        r"rejected: 1 the same instant and value again \(first: 2024-01-01T05:00:00Z\)",
    ),
    Case(
        "two prices for an instant",
        UTC,
        PRICE + DAY + "2024-01-01 05:00,99\n",
        r"error: .*1 instants have several values, such as 2024-01-01T05:00:00Z with 15, 99",
    ),
    Case(
        "two prices for an instant, the last",
        f"{UTC} --duplicates last",
        PRICE + DAY + "2024-01-01 05:00,99\n",
        r"rejected: 1 duplicate instants \(last kept\)",
    ),
    Case(
        "a row off the grid",
        UTC,
        PRICE + DAY + "2024-01-02 00:17,5\n",
        r"error: .*comes after 77 min|error: .*times must be 60 min apart, but 2024-01-02T00:17",
    ),
    Case(
        "quarter hours begin in the middle",
        UTC,
        PRICE + DAY + "2024-01-02 00:00,5\n2024-01-02 00:15,6\n",
        r"error: .*comes after 15 min: say --step 15 --gaps hold if a value holds until the next",
    ),
    Case(
        "price is text",
        UTC,
        PRICE + DAY + "2024-01-02 00:00,free\n",
        r"rejected: 1 value is not a number \(first: line 26: 2024-01-02 00:00, free\)",
    ),
    Case("price is blank", UTC, PRICE + DAY + "2024-01-02 00:00,N/A\n", r"rejected: 1 no value"),
    Case(
        "negative prices",
        UTC,
        PRICE + DAY.replace(",15\n", ",-15\n"),
        r"lowest -0\.015, .*negative 1",
    ),
    Case(
        "decimal commas",
        f"{UTC} --delimiter ; --decimal ,",
        "time;price\n2024-01-01 00:00;10,5\n2024-01-01 01:00;1.011,5\n2024-01-01 02:00;7,5\n",
        r"error: .*steps without a value: 1",
    ),
    Case("one value", UTC, PRICE + "2024-01-01 00:00,1\n", r"error: .*at least two values, 1 are"),
    Case(
        "an hour that does not exist",
        BERLIN,
        PRICE + SPRING,
        r"error: .*1 local times that Europe/Berlin skips, such as 2024-03-31 02:00:00",
    ),
    Case(
        "an hour that does not exist, dropped",
        f"{BERLIN} --nonexistent drop",
        PRICE + SPRING,
        r"rows: 24 read, 23 kept\nrejected: 1 time missing, unreadable or dropped",
    ),
    Case(
        "an hour that does not exist, moved",
        f"{BERLIN} --nonexistent shift",
        PRICE + SPRING,
        r"error: .*1 instants have several values, such as 2024-03-31T01:00:00Z with 2, 3",
    ),
    Case(
        "an hour that comes twice",
        BERLIN,
        PRICE + AUTUMN,
        r"error: .*2 local times that the clock shows twice",
    ),
    Case(
        "an hour that comes twice, inferred",
        f"{BERLIN} --ambiguous infer",
        PRICE + AUTUMN,
        r"from 2024-10-26T22:00:00Z, to 2024-10-27T23:00:00Z, step 60 min, values 25",
    ),
    Case(
        "an hour that comes twice, but stands there once",
        f"{BERLIN} --ambiguous infer",
        PRICE + AUTUMN.replace("2024-10-27 02:00,2\n", "", 1),
        r"error: .*2024-10-27 02:00:00 stands there 1 times: say earlier, later or drop",
    ),
    Case("rule misspelt", f"{UTC} --beyond never", PRICE + DAY, r"error: --beyond: must be one of"),
    Case(
        "unknown region",
        UTC.replace("EU-West", "EU-Wset"),
        PRICE + DAY,
        r"error: --region: the base has no region 'EU-Wset'; did you mean 'EU-West'\?",
    ),
    Case(
        "time 0 outside",
        f"{UTC} --start 2025-01-01T00:00:00Z",
        PRICE + DAY,
        r"error: --start: time 0 is 2025-01-01T00:00:00Z \(as given\), but the series of EU-West",
    ),
    Case("time 0, no zone", f"{UTC} --start 2024-01-01", PRICE + DAY, r"error: --start: must"),
    Case(
        "entsoe, two sequences",
        "entsoe F --usd-rate 1.1 --region EU-West",
        ENTSOE + "".join(
            f'"01/01/2026 00:{q}:00 - 01/01/2026 00:{q + 15}:00","BZN|X","Sequence {s}","5"\n'
            for s in (1, 2) for q in (15, 30)
        ),
        r"error: in\.csv: several values of Sequence: say --sequence, one of \['Sequence 1', ",
    ),
    Case(
        "entsoe, zone contradicts",
        "entsoe F --usd-rate 1.1 --region EU-West --tz UTC",
        ENTSOE + '"01/01/2026 00:00 - 01/01/2026 01:00","BZN|X","Without Sequence","5"\n',
        r"error: --tz UTC: the header of in\.csv states CET/CEST; leave it out",
    ),
    Case(
        "citylearn, no start",
        "citylearn F --unit USD/kWh --region EU-West",
        "electricity_pricing\n0.22\n0.54\n",
        r"error: in\.csv: has no times: say --start-time",
    ),
    # networks
    Case(
        "not a skyplane table",
        f"skyplane F {NET}",
        "instance_name,cloud_provider,vcpu_cost\nm5,aws,32\n",
        r"error: in\.csv: not a Skyplane table of throughput, latency or cost; it has: instance",
    ),
    Case(
        "misspelt by its source",
        f"skyplane F {NET}",
        SKY.replace("received", "recieved") + SKY_A + SKY_B,
        r"series of gbps, ordered pairs 2, of all 2, lowest 1, median 1\.5, highest 2",
    ),
    Case(
        "blank, negative, failed",
        f"skyplane F {NET}",
        SKY + SKY_A + SKY_B + "a,PREMIUM,x,c,PREMIUM,x,,True\nb,PREMIUM,x,c,PREMIUM,x,-1,True\n"
        "c,PREMIUM,x,b,PREMIUM,x,1,False\n",
        r"rejected: 1 measurement failed .*\nrejected: 1 no throughput_received .*\n"
        r"rejected: 1 throughput_received is not a number >= 0",
    ),
    Case(
        "pairs twice",
        f"skyplane F {NET} --duplicates error",
        SKY + SKY_A + SKY_A + SKY_B,
        r"error: in\.csv: 1 pairs again \(first: line 3: a, b\)",
    ),
    Case(
        "blank round trips",
        f"skyplane F l.csv {NET}",
        {"in.csv": SKY + SKY_A + SKY_B, "l.csv": LAT + "a,PREMIUM,b,PREMIUM,8,9,10\n"
         "b,PREMIUM,a,PREMIUM,,,\n"},
        r"error: network: 1 links without a latency, such as b -> a",
    ),
    Case(
        "no price",
        "skyplane F --gpus 8",
        SKY + SKY_A + SKY_B,
        r"error: --price: new regions \(--gpus\) need one, USD per kWh",
    ),
    Case(
        "regions that the file does not have",
        "skyplane F",
        SKY + SKY_A + SKY_B,
        r"error: --map: region 'EU-West' of the base is not in the file",
    ),
    Case("matrix, no unit", f"matrix F {NET}", ",a,b\na,0,1\nb,2,0\n", r"error: --unit: a matrix"),
    Case(
        "matrix, not square",
        f"matrix F {NET} --unit Gbit/s",
        ",a,b\na,0,1\nc,2,0\n",
        r"error: in\.csv: not square: 'b' is a column only",
    ),
    Case(
        "matrix, a cell is text",
        f"matrix F {NET} --unit Gbit/s",
        ",a,b\na,0,fast\nb,2,0\n",
        r"error: in\.csv: not a number >= 0: line 2: a, b, fast",
    ),
    Case(
        "matrix, a blank cell",
        f"matrix F {NET} --unit Gbit/s",
        ",a,b\na,0,\nb,2,0\n",
        r"rejected: 1 no value: no link \(first: line 2: a, b\)",
    ),
    Case(
        "topology, not XML",
        f"topology in.graphml {NET}",
        {"in.graphml": "<graphml"},
        r"error: in\.graphml: not valid graphml: ",
    ),
    Case("topology, a CSV", f"topology F {NET}", "a,b\n", r"error: .*must end in \.graphml or"),
    Case(
        "topology, a link without a speed",
        f"topology in.graphml {NET}",
        graph(RING + edge("a", "c", None)),
        r"error: in\.graphml: 1 of 5 links state no speed, such as A - C: say --capacity",
    ),
    Case(
        "topology, two parts",
        f"topology in.graphml {NET}",
        graph(edge("a", "b") + edge("c", "d")),
        r"error: in\.graphml: the regions lie in 2 parts without a path between: A, B \| C, D",
    ),
    Case(
        "topology, two parts kept",
        f"topology in.graphml {NET} --disconnected keep",
        graph(edge("a", "b") + edge("c", "d")),
        r"warning: 2 parts without a path between: A, B \| C, D",
    ),
    Case(
        "topology, parallel links",
        f"topology in.graphml {NET} --region A --region B",
        graph(RING + edge("a", "b", "5e9")),
        r"changed: 1 parallel links added to the first of their pair",
    ),
    Case(
        "topology, unknown region",
        f"topology in.graphml {NET} --region A --region Z",
        graph(RING),
        r"error: --region: unknown name 'Z'; known: A, B, C, D",
    ),
    Case(
        "cluster, no list of nodes",
        "cluster F --region EU-West",
        "a,b\n1,2\n",
        r"error: in\.csv: not a node list \(sn,gpu,model\)",
    ),
    # outputs
    Case("no suffix", "tiresias F --out x", TIRESIAS + T1, r"error: --out x: must end in \.toml"),
    Case(
        "no folder",
        "tiresias F --out no/x.toml",
        TIRESIAS + T1,
        r"error: --out no/x\.toml: no such folder no",
    ),
    Case(
        "there already",
        "tiresias F --out old.toml",
        {"in.csv": TIRESIAS + T1, "old.toml": "old"},
        r"error: --out old\.toml: exists; another name, or --force",
    ),
    Case("unknown base", "tiresias F --base papr", TIRESIAS + T1, r"error: scenario: .*'paper'\?"),
    Case("unknown format", "tirasias F", TIRESIAS + T1, r"error: No such command 'tirasias'"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.what for case in CASES])
def test_hostile_input(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ImportCommand(tmp_path, monkeypatch, capsys)
    files = case.content if isinstance(case.content, Mapping) else {"in.csv": case.content}
    command.write(files)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    args = ["in.csv" if word == "F" else word for word in case.args.split()]
    if "--out" not in args:
        args += ["--out", "out.toml"]
    result = command.run(*args)
    if case.says.startswith("error: "):
        assert result.code == 2, result.out
        assert result.err.count("\n") == 1
        assert re.match(case.says, result.err), result.err
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    else:
        assert result.code == 0, result.err
        assert re.search(case.says, result.out), result.out
        assert (tmp_path / "out.toml").exists()


def test_the_table_is_long_enough() -> None:
    assert len({case.what for case in CASES}) == len(CASES) >= 60
