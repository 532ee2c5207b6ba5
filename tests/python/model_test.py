"""Model answers as the commands of the binary do."""

import json
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy

import tapestry
from support import answers, command, heed_ctrl_c, lines_of, trained

# An empty line, and one that only has signs the tokenizers do not know.
LINES = lines_of("valid.src") + ["", "?!"]


def model(task):
    return tapestry.Model.load(trained(task))


class Translates(unittest.TestCase):
    def test_as_the_binary(self):
        texts = model("translation").translate(LINES)
        self.assertEqual(texts, answers("translate", trained("translation"), LINES))
        self.assertTrue(any(texts))

    def test_with_keys_of_generation(self):
        loaded = model("translation")
        options = ["--beam-size", "4", "--length-penalty", "0.6", "--max-new-tokens", "5"]
        texts = loaded.translate(LINES, num_beams=4, length_penalty=0.6, max_new_tokens=5)
        self.assertEqual(texts, answers("translate", trained("translation"), LINES, *options))
        self.assertNotEqual(texts, loaded.translate(LINES))
        drawn = loaded.translate(LINES, do_sample=True, seed=3)
        self.assertEqual(drawn, answers("translate", trained("translation"), LINES, "--do-sample", "--seed", "3"))
        risk = loaded.translate(LINES, mbr_samples=4, seed=3)
        self.assertEqual(risk, answers("translate", trained("translation"), LINES, "--mbr", "4", "--seed", "3"))

    def test_n_best_to_the_bit(self):
        # Which sentences several threads search together depends on the clock, and the last bits on that.
        self.addCleanup(tapestry.set_num_threads, tapestry.num_threads())
        tapestry.set_num_threads(1)
        found = model("translation").translate_n_best(LINES, 2)
        printed = answers("translate", trained("translation"), LINES, "--n-best", "2", "--detail", "jsonl",
                          "--threads", "1")
        self.assertEqual(len(found), len(printed))
        for ours, line in zip(found, printed):
            theirs = json.loads(line)["translations"]
            self.assertEqual([one.text for one in ours], [one["text"] for one in theirs])
            self.assertEqual([one.log_probability for one in ours], [one["log_probability"] for one in theirs])
            self.assertEqual([one.score for one in ours], [one["score"] for one in theirs])
            self.assertEqual([one.finished for one in ours], [one["finished"] for one in theirs])

    def test_scores(self):
        targets = lines_of("valid.tgt")
        scores = model("translation").score(targets, LINES[:-2])
        printed = command("score", "--model", trained("translation"), "--source", "valid.src", "--target",
                          "valid.tgt", "--tokens").stdout.split("\n")[:-1]
        for score, line in zip(scores, map(json.loads, printed)):
            self.assertEqual(score.log_probability, line["log_probability"])
            self.assertEqual(score.token_log_probabilities, line["token_log_probabilities"])
        self.assertEqual(len(scores), len(printed))

    def test_quantized(self):
        loaded = tapestry.Model.load(trained("translation"), weights="int8")
        printed = answers("translate", trained("translation"), LINES, "--weights", "int8")
        self.assertEqual(loaded.translate(LINES), printed)

    def test_tokens_go_there_and_back(self):
        loaded = model("translation")
        ids = loaded.encode(LINES[:3])
        self.assertEqual(loaded.decode(ids, "source"), LINES[:3])
        self.assertEqual(loaded.decode([[]]), [""])

    def test_threads_take_turns(self):
        loaded = model("translation")
        expected = loaded.translate(LINES)
        found = {}
        threads = [threading.Thread(target=lambda i=i: found.update({i: loaded.translate(LINES)})) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, {i: expected for i in range(4)})

    def test_threads_of_the_computation_change_nothing(self):
        before = tapestry.num_threads()
        expected = model("translation").translate(LINES)
        tapestry.set_num_threads(1)
        self.assertEqual(tapestry.num_threads(), 1)
        self.assertEqual(model("translation").translate(LINES), expected)
        tapestry.set_num_threads(before)


class Stops(unittest.TestCase):
    def test_at_ctrl_c(self):
        script = ("import sys, tapestry\n"
                  "model = tapestry.Model.load(sys.argv[1])\n"
                  "print('loaded', flush=True)\n"
                  "try:\n"
                  "    model.translate(['a b c d e f'] * 10_000_000)\n"
                  "except KeyboardInterrupt:\n"
                  "    print(model.translate(['']), flush=True)\n")
        child = subprocess.Popen([sys.executable, "-c", script, trained("translation")], stdout=subprocess.PIPE,
                                 text=True, preexec_fn=heed_ctrl_c)
        self.assertEqual(child.stdout.readline(), "loaded\n")
        time.sleep(1)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=20)
        self.assertEqual((out, child.returncode), ("['']\n", 0))


class Continues(unittest.TestCase):
    def test_as_the_binary(self):
        loaded = model("clm")
        printed = answers("generate", trained("clm"), LINES, "--no-do-sample", "--min-new-tokens", "3")
        texts = loaded.generate(LINES, do_sample=False, min_new_tokens=3)
        self.assertEqual([line + text for line, text in zip(LINES, texts)], printed)
        self.assertTrue(all(texts[:-2]))

    def test_draws(self):
        prompt = LINES[:4]
        texts = model("clm").generate(prompt, do_sample=True, num_beams=1, temperature=0.7, top_k=5, seed=9)
        printed = answers("generate", trained("clm"), prompt, "--do-sample", "--temperature", "0.7", "--top-k", "5",
                          "--seed", "9")
        self.assertEqual([line + text for line, text in zip(prompt, texts)], printed)

    def test_n_best_and_stops(self):
        loaded = model("clm")
        search = {"num_beams": 3, "do_sample": False, "min_new_tokens": 5}
        found = loaded.generate_n_best(LINES[:3], 2, **search)
        self.assertEqual([len(one) for one in found], [2, 2, 2])
        best = loaded.generate(LINES[:3], **search)
        self.assertEqual([one[0].text for one in found], best)
        stop = found[0][0].text[3:5]
        self.assertEqual(len(stop), 2)
        cut = loaded.generate(LINES[:1], stop=[stop], **search)[0]
        self.assertNotIn(stop, cut)

    def test_scores(self):
        texts = LINES[:-2]
        printed = answers("score", trained("clm"), texts, "--tokens", "--target", "-")
        for score, line in zip(model("clm").score(texts), map(json.loads, printed)):
            self.assertEqual(score.log_probability, line["log_probability"])
            self.assertEqual(score.tokens, len(line["tokens"]))


class Understands(unittest.TestCase):
    def test_classes(self):
        found = model("classification").classify(LINES, top_k=2)
        printed = answers("classify", trained("classification"), LINES, "--top-k", "2", "--detail", "jsonl")
        expected = [[(one["label"], one["probability"]) for one in json.loads(line)["classes"]] if line else []
                    for line in printed]
        self.assertEqual(found, expected)

    def test_any_number_of_classes(self):
        found = model("several").classify(LINES, threshold=0.2)
        printed = answers("classify", trained("several"), LINES, "--threshold", "0.2", "--detail", "jsonl")
        expected = [[(one["label"], one["probability"]) for one in json.loads(line)["classes"]] if line else []
                    for line in printed]
        self.assertEqual(found, expected)

    def test_answers_to_questions(self):
        contexts = LINES[:3] + [""]
        questions = [line.split(" ")[0] for line in contexts]
        found = model("questions").answer(questions, contexts, n_best=2)
        records = [json.dumps({"context": context, "question": question}) if context else ""
                   for context, question in zip(contexts, questions)]
        printed = answers("answer", trained("questions"), records, "--jsonl", "--n-best", "2", "--detail", "jsonl")
        for ours, line in zip(found, printed):
            theirs = json.loads(line)["answers"] if line else []
            self.assertEqual([(one.text, one.start, one.end, one.probability) for one in ours],
                             [(one["text"], one["start"], one["end"], one["probability"]) for one in theirs])
        self.assertEqual(found[-1], [])

    def test_predictions_of_points(self):
        found = model("regression").predict([[0.25], [-1.0]])
        printed = answers("predict", trained("regression"), ["0.25", "-1"])
        self.assertEqual([f"{y:.6g}" for [y] in found], printed)

    def test_labels_of_words(self):
        found = model("tokens").label_words(LINES)
        printed = answers("classify", trained("tokens"), LINES, "--detail", "jsonl")
        for words, line in zip(found, printed):
            theirs = json.loads(line) if line else {"words": [], "labels": [], "probabilities": []}
            self.assertEqual([word for word, _, _ in words], theirs["words"])
            self.assertEqual([label for _, label, _ in words], theirs["labels"])
            self.assertEqual([probability for _, _, probability in words], theirs["probabilities"])

    def test_vectors(self):
        vectors = model("vectors").embed(LINES[:-2])
        self.assertEqual((vectors.dtype, vectors.shape), (numpy.float32, (len(LINES) - 2, 16)))
        printed = [json.loads(line) for line in answers("embed", trained("vectors"), LINES[:-2])]
        numpy.testing.assert_array_equal(vectors, numpy.array(printed, numpy.float32))

    def test_no_vector_of_an_empty_text(self):
        with self.assertRaisesRegex(tapestry.DataError, "line 2 is empty"):
            model("vectors").embed(["a", ""])

    def test_words_for_masks(self):
        lines = ["<mask> " + LINES[0], LINES[1] + " <mask> <mask>", ""]
        found = model("mlm").fill_mask(lines, top_k=3)
        text = [" | ".join("  ".join(f"{word} {probability:.4f}" for word, probability in guesses) for guesses in masks)
                for masks in found]
        self.assertEqual(text, answers("fill-mask", trained("mlm"), lines, "--top-k", "3"))

    def test_restored_lines(self):
        for task in ["span_corruption", "infilling"]:
            lines = [LINES[0] + " <mask>", "", "<mask> " + LINES[1]]
            self.assertEqual(model(task).restore(lines), answers("fill-mask", trained(task), lines))


class Refuses(unittest.TestCase):
    def test_what_the_model_cannot_do(self):
        with self.assertRaisesRegex(tapestry.ConfigError, "needs a model of task translation"):
            model("clm").translate(["a"])
        with self.assertRaisesRegex(tapestry.ConfigError, "needs a model of task clm"):
            model("translation").generate(["a"])
        with self.assertRaisesRegex(tapestry.ConfigError, "restores lines"):
            model("infilling").fill_mask(["a"])
        with self.assertRaisesRegex(tapestry.ConfigError, "must be of task .* got question_answering"):
            model("questions")

    def test_wrong_values(self):
        loaded = model("translation")
        for wrong in [{"num_beam": 3}, {"num_beams": 0}, {"num_beams": "many"}, {"length_penalty": None}]:
            with self.assertRaises(tapestry.ConfigError) as raised:
                loaded.translate(["a"], **wrong)
            self.assertIn(next(iter(wrong)), str(raised.exception))
        with self.assertRaisesRegex(ValueError, "expected 1 <= n_best <= num_beams, got 3 and 2"):
            loaded.translate_n_best(["a"], 3)
        with self.assertRaises(TypeError):
            loaded.translate("a line that is no list")
        with self.assertRaisesRegex(tapestry.DataError, "got 4000"):
            loaded.decode([[4000]])

    def test_a_folder_that_is_none(self):
        theirs = command("translate", "--model", "nowhere", text="a\n", check=False)
        with self.assertRaises(tapestry.DataError) as raised:
            tapestry.Model.load("nowhere")
        self.assertIn(str(raised.exception), theirs.stderr)
        self.assertEqual(raised.exception.exit_code, theirs.returncode)


if __name__ == "__main__":
    unittest.main()
