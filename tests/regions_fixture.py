"""Regions as processes, for drills: workers of scripted answers, several gateways on fixed ports, the links between regions, which may be
cut and slowed, and clients that know every letter of their answers and all gateways' addresses.
"""
import asyncio
import http.client
import itertools
import json
import pathlib
import shutil
import subprocess
import threading
import time

import gateway_discovery_test
import gateway_fixture
from gateway_fixture import BOX, Process, ask, chat, letters, text_of
from ports import free_port

SCRIPT = {**gateway_fixture.SCRIPT, "slots": 64, "step_ms": 40}
HEAD = """[gateway]
listen = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
fleet_key_file = "{key}"
region = "{name}"
region_secret_file = "{secret}"
keys_file = "{keys}"
resume_budget = 1
allowed_cidrs = ["127.0.0.0/8"]
"""


def wait(what, seconds=20, said=lambda: "waited in vain"):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, said()
        time.sleep(0.05)


def together(calls):
    failed = []

    def run(call):
        try:
            call()
        except BaseException as error:  # handed on below
            failed.append(error)
    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


class Links:
    """All links' event loop, in a thread of its own. `keeps`: each link keeps all that it has taken to the other region."""

    def __init__(self, keeps=False):
        self.keeps = keeps
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Link:
    """The one address of a region's gateways, as one gateway of another region sees it: each connection goes to the next of them that
    takes it. While it is cut nothing passes, and whoever connects is not refused either. `to`: that region's name."""

    def __init__(self, links, backends, delay_s, to=""):
        self.links, self.backends, self.port, self.to = links, backends, free_port(), to
        self.taken = bytearray()  # there, where links keep it
        self.delay_s, self.turn, self.cut_now, self.lost_now, self.open = delay_s, 0, False, False, set()
        self.server = links.run(asyncio.start_server(self.take, "127.0.0.1", self.port))

    async def take(self, reader, writer):
        self.open.add(writer)
        try:
            while self.cut_now:
                await asyncio.sleep(0.05)
            self.turn += 1
            for i in range(0 if self.lost_now else len(self.backends)):
                try:
                    to = await asyncio.open_connection("127.0.0.1", self.backends[(self.turn + i) % len(self.backends)])
                    break
                except OSError:
                    continue
            else:
                return
            self.open.add(to[1])
            await asyncio.gather(self.pump(reader, to[1], self.links.keeps), self.pump(to[0], writer))
            self.open.discard(to[1])
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self.open.discard(writer)

    async def pump(self, reader, writer, keeps=False):
        try:
            while data := await reader.read(1 << 16):
                if keeps:
                    self.taken += data
                await asyncio.sleep(self.delay_s)
                while self.cut_now:
                    await asyncio.sleep(0.05)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def cut(self, is_cut):
        self.cut_now = is_cut

    def lose(self, is_lost):
        """Nobody is behind it: who connects is let go at once, and who is connected now."""
        self.lost_now = is_lost
        if is_lost:
            self.links.loop.call_soon_threadsafe(lambda: [writer.close() for writer in list(self.open)])

    def close(self):
        async def end():
            self.server.close()
            for writer in list(self.open):
                writer.close()
        self.links.run(end())


class Region:
    """`workers`: how many of each process; gateways begin when all regions' ports are known. `keys`, `pool`, `tables`: more of the keys'
    file, of the pool, and of each gateway's file. `serve`, `gateway`: more flags, with {folder}, {i} (which one) and {start} (another number
    each time). `env`: of all its processes, the variables {folder} as well."""

    def __init__(self, folder, name, workers, gateways=2, script=None, etcd=False, keys="", pool="", tables="", serve=(), gateway=(), env=None):
        self.folder, self.name, self.counts = pathlib.Path(folder) / name, name, workers
        self.folder.mkdir()
        self.script = self.folder / "script.json"
        self.script.write_text(json.dumps(script or SCRIPT))
        self.key, self.secret, self.keys = self.folder / "fleet.key", self.folder / "secret", self.folder / "keys"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", self.key], check=True)
        self.secret.write_text("s" * 64)
        self.keys.write_text(f"sk-ann ann\nsk-eu pin-eu region=eu\nsk-us pin-us region=us\nsk-gateway-of-{name} others gateway\n{keys}")
        self.pool, self.flags, self.starts, self.past = pool, {"serve": serve, "gateway": gateway}, itertools.count(), []
        self.env = {key: value.format(folder=self.folder) for key, value in (env or {}).items()}
        self.etcd = gateway_discovery_test.Etcd(self.folder / "etcd") if etcd else None
        self.ports, self.admins = [free_port() for _ in range(gateways)], [free_port() for _ in range(gateways)]
        self.gateways, self.links, self.more = [None] * gateways, [], [tables] * gateways
        self.workers, self.places = [None] * len(workers), [None] * len(workers)

    def more_flags(self, what, i):
        start = next(self.starts)
        return [flag.format(folder=self.folder, i=i, start=start) for flag in self.flags[what]]

    def ends(self, process):
        """Is called before one of its processes is killed; what has been killed is in `past`, with its log."""
        self.past.append(process)

    def start_workers(self, i):
        """One process; its workers' ports are others each time, which the gateways read of a file, or of etcd."""
        flags = ["--fleet-etcd", self.etcd.endpoint, "--fleet-pool", "box"] if self.etcd else []
        process = Process("serve", BOX, "--executor", f"modelled:{self.script}", "--replicas", self.counts[i], "--port", "0", "--admin-port", "0",
                          "--fleet-port", "0", "--fleet-name", f"{self.name}-{i}", "--fleet-key-file", self.key, *flags,
                          *self.more_flags("serve", i), env=self.env)
        places = []
        while len(places) < 2 * self.counts[i]:
            line = process.process.stdout.readline()
            assert line, list(process.log)
            if line.startswith(("admin on ", "fleet on ")):
                places.append((line.split()[0], int(line.rsplit(":", 1)[1])))
        self.workers[i] = process
        self.places[i] = {kind: [port for one, port in places if one == kind] for kind in ("admin", "fleet")}
        for g, gateway in enumerate(self.gateways):
            if gateway is not None:
                self.write(g)

    def kill_workers(self, i):
        process, self.workers[i] = self.workers[i], None
        self.ends(process)
        process.end()

    def file(self, g):
        return self.folder / f"gateway{g}.toml"

    def write(self, g, bad=""):
        text = HEAD.format(port=self.ports[g], admin=self.admins[g], key=self.key, name=self.name, secret=self.secret, keys=self.keys)
        if self.etcd:
            text += f'[etcd]\nendpoints = ["{self.etcd.endpoint}"]\n'
        text += f'[[pool]]\nname = "box"\nmodel = "pelton-box"\nregion = "{self.name}"\n{self.pool}'
        for places in self.places if not self.etcd else []:
            text += "".join(f'[[worker]]\npool = "box"\nurl = "http://127.0.0.1:{port}"\n' for port in places["fleet"])
        fresh = self.file(g).with_suffix(".new")
        fresh.write_text(text + self.more[g] + bad)
        fresh.rename(self.file(g))

    def knows(self, other, links, delay_s=0.02):
        """Each gateway sees the other region over a link of its own, so far away: each way."""
        key = self.folder / f"key-of-{other.name}"
        key.write_text(f"sk-gateway-of-{other.name}\n")
        for g in range(len(self.gateways)):
            link = Link(links, other.ports, delay_s, other.name)
            self.links.append(link)
            self.more[g] += (f'[[region]]\nname = "{other.name}"\ngateway = "http://127.0.0.1:{link.port}"\nkey_file = "{key}"\n'
                             'egress_per_gb = 0.02\n')

    def start_gateway(self, g):
        self.write(g)
        self.gateways[g] = Process("gateway", "--config", self.file(g), *self.more_flags("gateway", g), env=self.env)

    def kill_gateway(self, g):
        gateway, self.gateways[g] = self.gateways[g], None
        self.ends(gateway)
        gateway.end()

    def start(self):
        """What does not run."""
        together([lambda i=i: self.start_workers(i) for i, process in enumerate(self.workers) if process is None])
        together([lambda g=g: self.start_gateway(g) for g, gateway in enumerate(self.gateways) if gateway is None])

    def kill(self):
        """All of it at once."""
        ended = [process for process in (*self.gateways, *self.workers) if process is not None]
        self.gateways, self.workers = [None] * len(self.gateways), [None] * len(self.workers)
        for process in ended:
            self.ends(process)
        for process in ended:
            process.process.kill()
        for process in ended:
            process.end()

    def close(self):
        self.kill()
        for link in self.links:
            link.close()
        if self.etcd:
            self.etcd.end()

    def fault(self, **faults):
        """Of all its workers that run."""
        for process, places in zip(self.workers, self.places):
            for port in places["admin"] if process is not None and process.process.poll() is None else ():
                status, text = ask(port, "POST", "/admin/faults", faults or {"hang": False})
                assert status == 200, text

    def rows(self, g):
        return json.loads(ask(self.admins[g], "GET", "/v1/workers")[1])["workers"]

    def regions(self, g):
        return json.loads(ask(self.admins[g], "GET", "/v1/regions")[1])["regions"]

    def ended(self):
        """Of its processes that have ended by themselves: the exit code, and what they said last."""
        return [(process.process.returncode, list(process.log)[-5:]) for process in (*self.gateways, *self.workers)
                if process is not None and process.process.poll() is not None]

    def is_whole(self):
        """Each of its gateways sees all of its workers."""
        return all(sum(row["state"] == "ready" and row["kind"] != "region" for row in self.rows(g)) == sum(self.counts)
                   for g in range(len(self.gateways)))

    def sees(self, other):
        """Each of its gateways does."""
        return all(row["state"] == "ready" for g in range(len(self.gateways)) for row in self.rows(g) if row["name"] == f"region-{other.name}.box")


def has_etcd():
    return shutil.which("etcd") is not None


class Refused(Exception):
    def __init__(self, status, code):
        super().__init__(f"status {status} {code}")
        self.status, self.code = status, code


class Broken(Exception):
    """The connection, amid an answer."""


def stream(port, number, count, seed, key, **headers):
    """Raises Refused, Broken, OSError (nobody listens there), AssertionError (the answer is wrong)."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        link.connect()
        try:
            link.request("POST", "/v1/chat/completions", json.dumps(chat(number, count, seed, stream=True)),
                         {"Content-Type": "application/json", "Authorization": f"Bearer {key}", **headers})
            answer = link.getresponse()
            if answer.status != 200:
                text = answer.read().decode()
                raise Refused(answer.status, json.loads(text)["error"]["code"])
            data = [line[6:].strip() for line in answer if line.startswith(b"data: ")]
        except (OSError, http.client.HTTPException) as error:
            raise Broken(repr(error)) from error
    finally:
        link.close()
    chunks = [json.loads(one) for one in data if one != b"[DONE]"]
    errors = [chunk["error"]["code"] for chunk in chunks if "error" in chunk]
    text, finish = text_of([chunk for chunk in chunks if "error" not in chunk])
    wanted = letters(seed, number, count)
    assert wanted.startswith(text), f"{number}: {text}"
    if errors or data[-1:] != [b"[DONE]"]:
        raise Broken(f"{errors} behind {len(text)} letters")
    assert (text, finish, data.count(b"[DONE]"), len({chunk["id"] for chunk in chunks})) == (wanted, ["stop"], 1, 1), (number, text, finish)


class Clients:
    """So many streams at a time, one after the other. Each asks the gateways of its own region first, and others where nobody listens."""

    def __init__(self, regions, count, length=25):
        self.regions, self.length, self.over, self.lock, self.results = regions, length, threading.Event(), threading.Lock(), []
        self.running = {}  # since when, by client
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        home = self.regions[number % 2]
        key = f"sk-{home.name}" if number % 10 >= 8 else "sk-ann"  # a fifth is tied to its region
        turn = number << 32
        while not self.over.is_set():
            turn += 1
            begun = self.running[number] = time.monotonic()
            result = self.one(home, turn % (1 << 52), key, turn // 2)
            with self.lock:
                self.results.append({"at": begun, "took": time.monotonic() - begun, "home": home.name, "key": key, **result})

    def one(self, home, number, key, turn):
        other = next(region for region in self.regions if region is not home)
        ports = [region.ports[(turn + i) % len(region.ports)] for region in (home, other) for i in range(len(region.ports))]
        for port in ports:
            try:
                stream(port, number, self.length, number % 1000, key)
                return {"what": "good", "port": port}
            except Refused as error:
                if error.status != 503:
                    return {"what": f"{error}", "port": port}
                return {"what": "503" if error.code == "no_worker" else str(error), "port": port}
            except Broken as error:
                return {"what": "broken", "port": port, "why": str(error)}
            except OSError:
                continue
            except AssertionError as error:
                return {"what": "wrong", "port": port, "why": str(error)}
        time.sleep(0.05)
        return {"what": "nobody", "port": 0}

    def since(self, begun, until=float("inf")):
        """What began then, all of it over; without an end nothing runs longer than 10 s."""
        wait(lambda: self.over.is_set() or min(self.running.values()) >= (until if until < float("inf") else time.monotonic() - 10), 30,
             lambda: f"a request takes more than 30 s: {sorted(self.running.values())[:3]}, it is {time.monotonic()}")
        with self.lock:
            return [one for one in self.results if begun <= one["at"] < until]

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        self.running.clear()
