#!/usr/bin/env python3
"""Asks a model one question and prints the answer as it comes, with nothing but ctypes.

usage: chat.py MODEL QUESTION

LIBPELTON is the library's path where it is not installed.
"""
import ctypes
import json
import os
import sys

TEXT = 0  # pelton_event_kind


class Request(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t),
                ("tokens", ctypes.POINTER(ctypes.c_int32)), ("token_count", ctypes.c_size_t),
                ("prompt", ctypes.c_char_p), ("messages", ctypes.c_char_p),
                ("tools", ctypes.c_char_p), ("reasoning_effort", ctypes.c_char_p),
                ("grammar", ctypes.c_void_p),
                ("max_tokens", ctypes.c_int32), ("ignore_stop_tokens", ctypes.c_int32),
                ("temperature", ctypes.c_float), ("top_p", ctypes.c_float), ("min_p", ctypes.c_float),
                ("top_k", ctypes.c_int32),
                ("repetition_penalty", ctypes.c_float), ("frequency_penalty", ctypes.c_float),
                ("presence_penalty", ctypes.c_float),
                ("has_seed", ctypes.c_int32), ("seed", ctypes.c_uint64), ("logprobs", ctypes.c_int32),
                ("reserved", ctypes.c_int32)]


class Event(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_int),
                ("text", ctypes.POINTER(ctypes.c_char)), ("bytes", ctypes.c_size_t),
                ("call", ctypes.c_int32), ("token", ctypes.c_int32), ("logprob", ctypes.c_float),
                ("reserved", ctypes.c_int32)]


Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Event))


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: chat.py MODEL QUESTION")
    library = ctypes.CDLL(os.environ.get("LIBPELTON", "libpelton.so.1"))
    library.pelton_error_message.restype = ctypes.c_char_p
    library.pelton_free.argtypes = [ctypes.c_void_p]
    library.pelton_request_init.argtypes = [ctypes.c_void_p, ctypes.POINTER(Request), ctypes.c_size_t]
    library.pelton_generate.argtypes = [ctypes.c_void_p, ctypes.POINTER(Request), Callback, ctypes.c_void_p,
                                        ctypes.c_void_p]

    def check(status):
        if status != 0:
            sys.exit(library.pelton_error_message().decode())

    @Callback
    def show(_, event):
        if event.contents.kind == TEXT:
            sys.stdout.write(ctypes.string_at(event.contents.text, event.contents.bytes).decode())
            sys.stdout.flush()
        return 0

    model = ctypes.c_void_p()
    check(library.pelton_load(sys.argv[1].encode(), None, ctypes.byref(model)))
    request = Request()
    library.pelton_request_init(model, request, ctypes.sizeof(request))
    request.messages = json.dumps([{"role": "user", "content": sys.argv[2]}]).encode()
    request.temperature = 0
    check(library.pelton_generate(model, request, show, None, None))
    print()
    library.pelton_free(model)


if __name__ == "__main__":
    main()
