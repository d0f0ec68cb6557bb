"""What stands in the memory of a process: its heap, stacks and whatever else is no file's (Linux)."""
import array
import os
import pathlib
import re

PAGE = os.sysconf("SC_PAGE_SIZE")
IN_USE = 0b11 << 62  # of a page's entry: it is in memory, or swapped out
STEP = 1 << 22       # bytes that are read at a time
KEPT = 1 << 10       # what is looked at again with the next ones, and how long a word may be


def anonymous(pid):
    """[begin, end) of each mapping that is of no file and may be read."""
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        name = words[5] if len(words) > 5 else ""
        if words[1].startswith("r") and (not name or name in ("[heap]", "[stack]") or name.startswith("[anon")):
            begin, end = words[0].split("-")
            yield int(begin, 16), int(end, 16)


def in_use(pages, begin, end):
    """Of a mapping, the runs of pages that anything was ever written to. `pages`: /proc/PID/pagemap."""
    first = None
    pages.seek(begin // PAGE * 8)
    for at in range(begin, end, STEP):
        entries = array.array("Q", pages.read((min(at + STEP, end) - at) // PAGE * 8))
        for i, entry in enumerate(entries):
            if entry & IN_USE:
                first = at + i * PAGE if first is None else first
            elif first is not None:
                yield first, at + i * PAGE
                first = None
    if first is not None:
        yield first, end


def contexts(pid, words, before=64, after=192):
    """Yields (word, what stands around it) for each place in the process's memory where one of these byte strings stands. A process that
    has ended has none. Others may write there meanwhile unless it is stopped (SIGSTOP)."""
    try:
        with open(f"/proc/{pid}/mem", "rb", 0) as memory, open(f"/proc/{pid}/pagemap", "rb", 0) as pages:
            for mapping in anonymous(pid):
                for begin, end in in_use(pages, *mapping):
                    yield from in_run(memory, begin, end, words, before, after)
    except (FileNotFoundError, ProcessLookupError):
        return


def in_run(memory, begin, end, words, before, after):
    patterns = [(word, re.compile(re.escape(word), re.DOTALL)) for word in words]  # find() is slow where much is zero, as tokens and memory are
    for at in range(begin, end, STEP):
        try:
            data = os.pread(memory.fileno(), min(at + STEP + KEPT, end) - at, at)
        except OSError:  # it has been unmapped meanwhile
            return
        for word, pattern in patterns:
            for place in (found.start() for found in pattern.finditer(data)):
                if place < STEP:
                    yield word, data[max(0, place - before):place + after]
