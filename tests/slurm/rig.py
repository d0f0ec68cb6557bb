"""A real Slurm on this machine: munged with a key of its own, a controller and two daemons that are nodes "n0" and "n1", each of eight
processors, whatever the machine has. As root; everything lies in a folder, speaks on the loopback, and is ended by its own process ids.
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from ports import free_port  # noqa: E402

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "srun")


def missing():
    """The programs that are not installed; empty: a rig may be made."""
    return [name for name in PROGRAMS if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None]


class Rig:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.processes = []
        self.env = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin", "SLURM_CONF": str(self.folder / "slurm.conf")}
        try:
            self.begin()
        except BaseException:
            self.end()
            raise

    def begin(self):
        host = socket.gethostname().split(".")[0]
        controller, *nodes = (free_port() for _ in range(3))
        socket_file = self.folder / "munge.socket"
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for name in ("state", "spool-n0", "spool-n1"):
            (self.folder / name).mkdir()
        (self.folder / "slurm.conf").write_text(f"""ClusterName=rig
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={socket_file}
CredType=cred/munge
SlurmctldPort={controller}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1
ReturnToService=2
KillWait=10
MinJobAge=300
JobRequeue=1
MpiDefault=none
SlurmdParameters=config_overrides
""" + "".join(f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=1000\n" for i, port in enumerate(nodes))
            + "PartitionName=main Nodes=n0,n1 Default=YES MaxTime=60 State=UP OverTimeLimit=0\n")
        self.folder.chmod(0o755)
        self.start("munged", "--foreground", "--force", f"--socket={socket_file}", f"--key-file={key}",
                   f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munged.seed")
        self.wait(socket_file.exists)
        self.start("slurmctld", "-D", "-i")
        for i in range(2):
            self.start("slurmd", "-D", "-N", f"n{i}")
        self.wait(lambda: self.run("sinfo", "-h", "-o", "%t %D", check=False).stdout.strip() == "idle 2")

    def start(self, *words):
        log = open(self.folder / f"{words[0]}-{len(self.processes)}.out", "wb")
        with log:
            self.processes.append(subprocess.Popen(words, env=self.env, stdout=log, stderr=log, cwd=self.folder))

    def run(self, *words, check=True, **more):
        return subprocess.run(words, env={**self.env, **more.pop("env", {})}, capture_output=True, text=True, check=check, timeout=60, **more)

    def wait(self, is_so, seconds=60):
        end = time.monotonic() + seconds
        while not is_so():
            dead = [process.args for process in self.processes if process.poll() is not None]
            assert not dead and time.monotonic() < end, (dead, self.logs())
            time.sleep(0.1)

    def logs(self):
        return "\n".join(f"{file.name}: " + file.read_text(errors="replace")[-1500:] for file in sorted(self.folder.glob("*.log"))
                         + sorted(self.folder.glob("*.out")))

    def submit(self, *words, **env):
        """The job's id."""
        return int(self.run("sbatch", "--parsable", *map(str, words), env=env, cwd=self.folder).stdout.split(";")[0])

    def state(self, job):
        """As `squeue` says it, RUNNING or COMPLETED; empty: it is unknown."""
        return self.run("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T", check=False).stdout.strip()

    def strays(self):
        """Processes of jobs and their slurmstepd, by this rig's own SLURM_CONF: no others have it."""
        mark = f"SLURM_CONF={self.env['SLURM_CONF']}".encode()
        own = {os.getpid(), *(process.pid for process in self.processes)}
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if int(folder.name) not in own and mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                pass
        return found

    def end_jobs(self):
        """All of them, also those that a failed test has left: they would outlive their daemons."""
        if not any(process.args[0] == "slurmctld" and process.poll() is None for process in self.processes):
            return
        end = time.monotonic() + 15
        try:
            self.run("scancel", "--state=PENDING", "--user=root", check=False)
            self.run("scancel", "--signal=KILL", "--full", "--user=root", check=False)
            while time.monotonic() < end and self.run("squeue", "-h", "-o", "%T", check=False).stdout.strip():
                time.sleep(0.2)
        except subprocess.TimeoutExpired:
            pass

    def end(self):
        self.end_jobs()
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self.strays():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
