// What the text becomes before a model sees it: the sections tokenizer, masking and denoising.
#include "apps/config/sections.h"

namespace tapestry {

namespace {

void bind_sampling(ConfigSection& s, SubwordSampling& sampling) {
  s.read("dropout", sampling.dropout,
         "Of byte-pair encodings: the chance of a merge to be left out at each step, 0.1 as a "
         "rule; 0: none.",
         between(0, 1));
  s.read("alpha", sampling.alpha,
         "Of algorithm unigram: a segmentation is drawn in proportion to its probability to this "
         "power, 0.2 to 0.5 as a rule; 0: the best one is taken.",
         between(0, 100));
  s.read("nbest", sampling.nbest,
         "Beside alpha: draws among so many best segmentations of a text; 0: among all.",
         between(0, 512));
}

}  // namespace

void bind_tokenizer(ConfigSection& s, Config& config) {
  TokenizerOptions& tokenizer = config.tokenizer;
  s.read_choice("type", tokenizer.type, names(TokenizerOptions::kTypes),
                "sentencepiece: pieces of words; bpe: pieces of words by a byte-pair encoding of "
                "our own, kept as text; word: whole words, the most frequent ones; char: each "
                "character is a token; huggingface: the tokenizer.json that path names, with the "
                "files beside it.");
  s.read_input_file("path", tokenizer.path,
                    "File of a trained tokenizer to use; empty: one is trained on the data.");
  const bool translates = examples_of(config).has_targets;
  const std::string no_targets = concat("with task: ", config.task->name);
  const auto side = [&](const char* key, std::string& path) {
    s.section_if(translates, no_targets, key, "The tokenizer of this side.",
                 [&](ConfigSection& inner) {
                   inner.read_input_file("path", path,
                                         "File of a trained tokenizer for this side; the other "
                                         "side needs one, too.");
                 });
  };
  side("source", tokenizer.source_path);
  side("target", tokenizer.target_path);
  const bool trains = tokenizer.learns_pieces();
  const std::string why =
      tokenizer.is_trained() ? concat("with type: ", tokenizer.type) : "with path";
  s.read_choice_if(trains && tokenizer.type == "sentencepiece", why, "algorithm",
                   tokenizer.algorithm, names(TokenizerOptions::kAlgorithms),
                   "How SentencePiece finds its pieces.");
  s.read_if(tokenizer.is_trained(), why, "vocab_size", tokenizer.vocab_size,
            "Number of tokens, all special ones counted. With algorithm: char and type: word it is "
            "an upper bound; of type: char it only stands in where plan and bench see no data.",
            between(8, double(TokenizerOptions::kMostPieces)));
  s.read("share", tokenizer.share,
         "One tokenizer (and one embedding table) for source and target, else one for each.");
  const bool of_characters = trains && tokenizer.type != "word";
  s.read_if(of_characters, why, "character_coverage", tokenizer.character_coverage,
            "Share of the text's characters that have a token of their own; the rarest have none.",
            between(TokenizerOptions::kLeastCoverage, 1));
  s.read_if(of_characters, why, "byte_fallback", tokenizer.byte_fallback,
            "Writes unknown characters as bytes, for which it reserves 256 tokens.");
  s.read_choice_if(trains, why, "normalization", tokenizer.normalization,
                   names(TokenizerOptions::kNormalizations),
                   "Unicode normalization of the text, of sources in a translation; those in cf "
                   "also fold case.");
  s.read_choice_if(trains && translates, trains ? no_targets : why, "target_normalization",
                   tokenizer.target_normalization, names(TokenizerOptions::kNormalizations),
                   "The same for targets. identity: a translation is written with the characters "
                   "of the data. Checkpoints from before this key have that of normalization.");
  const bool learns = tokenizer.is_trained();
  s.read_if(learns, why, "user_symbols", tokenizer.user_symbols,
            "Words that are one token each wherever they stand, and that no normalization changes, "
            "such as <BT> or >>deu<<. They have no white space.");
  s.read_if(learns, why, "user_symbol_pattern", tokenizer.user_symbol_pattern,
            "A regular expression for such words: each one that the training data has becomes a "
            "token, such as the placeholders of \\{[A-Z]+\\}.");
  s.read_if(trains, why, "max_sentences", tokenizer.max_sentences,
            "Trains on so many lines, drawn evenly from the data; 0: all.", at_least(0));
  s.section_if(translates, no_targets, "sampling",
               "Cuts training texts into other pieces in each epoch.", [&](ConfigSection& inner) {
                 inner.section("source", "Of sources.", [&](ConfigSection& side_keys) {
                   bind_sampling(side_keys, config.variation.source);
                 });
                 inner.section("target", "Of targets.", [&](ConfigSection& side_keys) {
                   bind_sampling(side_keys, config.variation.target);
                 });
               });
}

void bind_masking(ConfigSection& s, Config& config) {
  MaskingOptions& masking = config.masking;
  s.read("probability", masking.probability, "Chance of a token to be one that is predicted.",
         above_up_to(0, 1));
  s.read("mask_share", masking.mask_share, "Share of these that the model sees as <mask>.",
         between(0, 1));
  s.read("random_share", masking.random_share,
         "Share of these that the model sees as a random token; it sees the rest as they are.",
         between(0, 1));
  s.read("whole_word", masking.whole_word, "Chooses whole words instead of single tokens.");
}

void bind_denoising(ConfigSection& s, Config& config) {
  DenoisingOptions& denoising = config.denoising;
  s.read_choice("objective", denoising.objective, names(DenoisingOptions::kObjectives),
                "span_corruption: the model writes the hidden spans, as T5 does; infilling: it "
                "writes the whole text, as BART does.");
  s.read("noise_density", denoising.noise_density,
         "Share of the tokens that is hidden; 0: 0.15 for span_corruption, 0.3 for infilling.",
         from_up_to_below(0, 1));
  s.read("mean_span_length", denoising.mean_span_length,
         "Length of a hidden span in tokens, on average.",
         between(1, DenoisingOptions::kLongestMeanSpan));
}

}  // namespace tapestry
