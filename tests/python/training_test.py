"""train() and evaluate() do as the commands of the binary do."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy

import tapestry
from support import TASKS, command, heed_ctrl_c, trained

# A config as a notebook has it; paths are relative to the working directory.
CONFIG = {
    "task": "clm",
    "data": {"train": {"text": "train.src"}, "valid": {"text": "valid.src"}, "block_size": 16},
    "tokenizer": {"vocab_size": 40},
    "model": {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2,
              "position_embedding": "learned", "max_position_embeddings": 16},
    "threads": 1,
    "training": {"batch_size": 128, "max_steps": 20, "learning_rate": 5e-3, "logging_steps": 5, "eval_steps": 10,
                 "save_steps": 5},
}


def weights_of(run):
    return (pathlib.Path(run) / "last" / "model.safetensors").read_bytes()


class InTasks(unittest.TestCase):
    def setUp(self):
        self.before = os.getcwd()
        os.chdir(TASKS)
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, self.before)
        self.scratch = pathlib.Path(scratch.name)


class Trains(InTasks):
    def test_a_file_as_the_binary(self):
        run = tapestry.train("translation.yaml", [f"output_dir={self.scratch}/run"])
        self.assertEqual(run, str(self.scratch / "run"))
        self.assertEqual(weights_of(run), weights_of(trained("translation")))

    def test_a_dict_and_tells_of_it(self):
        updates, validations = [], []
        before = tapestry.num_threads()
        run = tapestry.train({**CONFIG, "output_dir": self.scratch / "run", "seed": numpy.int64(3)},
                             on_update=lambda step, metrics: updates.append((step, metrics)),
                             on_validation=lambda step, metrics: validations.append((step, metrics)))
        self.assertEqual(tapestry.num_threads(), before)
        self.assertEqual([step for step, _ in updates], [5, 10, 15, 20])
        self.assertEqual([step for step, _ in validations], [10, 20])
        lines = [json.loads(line) for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()]
        written = [line for line in lines if line["kind"] == "train"]
        self.assertEqual([metrics["loss"] for _, metrics in updates], [line["loss"] for line in written])
        self.assertLess(validations[1][1]["nll"], validations[0][1]["nll"])
        self.assertEqual(tapestry.Model.load(run).config["seed"], 3)
        self.assertTrue(tapestry.Model.load(run).generate(["a b"]))

    def test_in_parts_with_the_same_bits(self):
        whole = tapestry.train(CONFIG, [f"output_dir={self.scratch}/whole"])
        for stop_at in [7, None]:
            parts = tapestry.train(CONFIG, [f"output_dir={self.scratch}/parts"], stop_at=stop_at)
        self.assertEqual(weights_of(whole), weights_of(parts))

    def test_until_a_callback_fails(self):
        def fails(step, metrics):
            raise KeyError(step)

        with self.assertRaisesRegex(KeyError, "10"):
            tapestry.train(CONFIG, [f"output_dir={self.scratch}/run"], on_validation=fails)
        whole = tapestry.train(CONFIG, [f"output_dir={self.scratch}/whole"])
        resumed = tapestry.train(CONFIG, [f"output_dir={self.scratch}/run"])
        self.assertEqual(weights_of(resumed), weights_of(whole))

    def test_until_ctrl_c(self):
        script = ("import json, sys, tapestry\n"
                  "config, steps = json.loads(sys.argv[1]), int(sys.argv[2])\n"
                  "config['training']['max_steps'] = steps\n"
                  "try:\n"
                  "    tapestry.train(config, on_update=lambda step, _: print(step, flush=True))\n"
                  "except KeyboardInterrupt:\n"
                  "    print('interrupted', flush=True)\n")
        run = self.scratch / "run"
        config = json.dumps({**CONFIG, "output_dir": str(run)})
        child = subprocess.Popen([sys.executable, "-c", script, config, "100000"], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, preexec_fn=heed_ctrl_c)
        self.assertEqual(child.stdout.readline(), "5\n")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        self.assertIn("interrupted", out)
        self.assertEqual(child.returncode, 0)
        self.assertRegex(err, "stopped by SIGINT after update")
        state = json.loads((run / "last" / "trainer_state.json").read_text())
        self.assertIn(f"after update {state['step']};", err)
        # It goes on from there as a run that nothing stopped.
        more = state["step"] + 5
        resumed = tapestry.train({**CONFIG, "output_dir": run}, [f"training.max_steps={more}"])
        whole = tapestry.train({**CONFIG, "output_dir": self.scratch / "whole"}, [f"training.max_steps={more}"])
        self.assertEqual(weights_of(resumed), weights_of(whole))


class Refuses(InTasks):
    def test_a_wrong_file_with_the_words_of_the_binary(self):
        text = (TASKS / "clm.yaml").read_text().replace("learning_rate", "learning_rat")
        (self.scratch / "wrong.yaml").write_text(text)
        theirs = command("train", self.scratch / "wrong.yaml", "seed=-1", check=False)
        with self.assertRaises(tapestry.ConfigError) as raised:
            tapestry.train(self.scratch / "wrong.yaml", ["seed=-1"])
        self.assertIn(str(raised.exception), theirs.stderr)
        self.assertIn("did you mean 'learning_rate'?", str(raised.exception))
        self.assertIn("seed", str(raised.exception))
        line = text.split("\n").index("  learning_rat: 5e-3") + 1
        self.assertIn((str(self.scratch / "wrong.yaml"), line, 3), raised.exception.places)
        self.assertEqual(raised.exception.exit_code, theirs.returncode)

    def test_a_wrong_dict(self):
        wrong = {**CONFIG, "training": {**CONFIG["training"], "batch_siz": 3}, "output_dir": str(self.scratch)}
        with self.assertRaisesRegex(ValueError, r"config:\d+:\d+: unknown key 'batch_siz' in 'training'"):
            tapestry.train(wrong)
        with self.assertRaisesRegex(TypeError, "a config holds no set"):
            tapestry.train({**CONFIG, "output_dir": {"run"}})
        with self.assertRaisesRegex(tapestry.ConfigError, "nowhere.src"):
            tapestry.train({**CONFIG, "output_dir": "run", "data": {"train": {"text": "nowhere.src"}}})


class Evaluates(InTasks):
    def test_as_the_binary(self):
        for task in ["translation", "classification"]:
            run = trained(task)
            printed = command("evaluate", "--model", run, "--data", "valid", "--json").stdout
            self.assertEqual(tapestry.evaluate(run), json.loads(printed))

    def test_other_data(self):
        run = trained("translation")
        printed = command("evaluate", "--model", run, "--data", "source=train.src", "target=train.tgt", "--json").stdout
        self.assertEqual(tapestry.evaluate(run, {"source": "train.src", "target": "train.tgt"}), json.loads(printed))
        with self.assertRaisesRegex(tapestry.ConfigError, "has no data.test"):
            tapestry.evaluate(run, "test")


if __name__ == "__main__":
    unittest.main()
