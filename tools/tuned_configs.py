#!/usr/bin/env python3
"""Writes configs/MODEL/HARDWARE.toml by `pelton tune` for both gpt-oss models on every GPU that the cost model knows,
and the table of them in docs/tuning.md. All of it is modelled; nothing here was measured.

usage: tools/tuned_configs.py BINARY
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ("gpt-oss-20b", "gpt-oss-120b")
LOAD = ["--input-len", "1024", "--output-len", "512", "--random-range-ratio", "0.5", "--request-rate", "inf", "--num-prompts", "960", "--max-queue-seconds", "0"]
VARY = ["max-num-seqs=8,16,32,64,128,256,512", "max-num-batched-tokens=1024,2048,8192", "prompt-tokens-beside-decodes=0,256"]
LAYOUTS = (1, 2, 4, 8)
TPOT_MS = (50, 100, 200)
BEGIN, END = "<!-- written by tools/tuned_configs.py -->", "<!-- end of what it writes -->"


def tune(binary, model, gpu, devices, tpot):
    """The file, the best row and the command; None: the model does not fit there; "late": no combination keeps it."""
    words = ["pelton", "tune", model, "--gpu", gpu, *LOAD, "--objectives", f"tpot:{tpot}", "--search", "halving",
             "--devices", str(devices), "--vary", f"layout=tp{devices}"]
    for one in VARY:
        words += ["--vary", one]
    with tempfile.TemporaryDirectory() as folder:
        out, rows = pathlib.Path(folder) / "o.toml", pathlib.Path(folder) / "o.json"
        done = subprocess.run([binary, *words[1:], "--out", out, "--json", rows], capture_output=True, text=True, check=False)
        if done.returncode not in (0, 5):
            raise SystemExit(f"{' '.join(words)}: {done.stderr}")
        points = [one for one in json.loads(rows.read_text()) if "why_not" not in one] if rows.exists() else []
        if not points:
            return None
        kept = [one for one in points if one["keeps"]]
        if not kept:
            return "late"
        return out.read_text(), max(kept, key=lambda one: one["per_replica"]), " ".join(words)


def two_digits(value):
    return f"{float(f'{value:.2g}'):,.0f}".replace(",", " ")


def main():
    binary = sys.argv[1]
    table = ["| model | card | devices of a copy | max-num-seqs | max-num-batched-tokens | prompt tokens beside decodes | tokens/s | TPOT p90, ms |",
             "|---|---|---|---|---|---|---|---|"]
    cards = sorted(file.stem for file in (ROOT / "src/cost_model/data/hardware").glob("*.json"))
    for model in MODELS:
        for card in (one for one in cards if not one.startswith("cpu-")):
            found = None
            for devices in LAYOUTS:
                for tpot in TPOT_MS:
                    found = tune(binary, model, card, devices, tpot)
                    if found != "late":
                        break
                if found not in (None, "late"):
                    break
            if found in (None, "late"):
                table.append(f"| {model} | {card} | does not fit on {LAYOUTS[-1]}, or is too slow | | | | | |")
                continue
            text, best, command = found
            # All ask at once here, and wait for ever: that is this load's, and no setting for a deployment.
            text = "".join(line for line in text.splitlines(True) if not line.startswith("max-queue-seconds"))
            file = ROOT / "configs" / model / f"{card}.toml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"# modelled, not measured, by: {command}\n{text}")
            settings = best["settings"]
            beside = settings["prompt-tokens-beside-decodes"]
            table.append(f"| {model} | [{card}](../configs/{model}/{card}.toml) | {devices} | {settings['max-num-seqs']} | "
                         f"{settings['max-num-batched-tokens']} | {beside if beside != '0' else 'no bound'} | "
                         f"{two_digits(best['output_throughput'])} | {two_digits(best['p90_tpot_ms'])} |")
            print(table[-1], flush=True)
    page = ROOT / "docs" / "tuning.md"
    text = page.read_text()
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    page.write_text(text[:before] + "\n" + "\n".join(table) + "\n" + text[after:])


if __name__ == "__main__":
    main()
