// What a trained model makes of a text: the sections generation, answers and evaluation, and the
// keys of vectors.
#include "apps/config/sections.h"
#include "data/scores/words.h"

namespace tapestry {
namespace {

// Among which tokens a search draws.
void bind_draws(ConfigSection& s, SearchOptions& search) {
  s.read("do_sample", search.do_sample, "Draws tokens instead of taking the most probable one.");
  s.read("temperature", search.temperature, "Logits are divided by it before a draw.", positive());
  s.read("top_k", search.top_k, "Draws among so many of the most probable tokens; 0: among all.",
         at_least(0));
  s.read("top_p", search.top_p,
         "Draws among the most probable tokens that have this probability together; 1: among all.",
         above_up_to(0, 1));
  s.read("min_p", search.min_p,
         "Draws among the tokens that have this share of the most probable one's probability; 0: "
         "among all.",
         from_up_to_below(0, 1));
  s.read("epsilon_cutoff", search.epsilon_cutoff,
         "Draws among the tokens of at least this probability; 0: among all.",
         from_up_to_below(0, 1));
}

}  // namespace

void bind_generation(ConfigSection& s, Config& config) {
  SearchOptions& search = config.generation;
  s.read("num_beams", search.num_beams, "Hypotheses of the beam search; 1: greedy or sampled.",
         between(1, SearchOptions::kMostBeams));
  s.read("length_penalty", search.length_penalty,
         "Exponent of length_penalty_type: larger ones favour long outputs.", at_least(0));
  s.read_choice("length_penalty_type", search.length_penalty_type, named(kLengthPenalties),
                "Divides the log-probability of a hypothesis: by its length, by GNMT's formula, or "
                "not at all.");
  s.read_choice("early_stopping", search.early_stopping, named(kEarlyStoppings),
                "When a beam search ends. true: with num_beams finished hypotheses. false: also, "
                "once the best live one would not be among them at its present length. never: when "
                "no live one can win at any length.");
  s.read("max_length_ratio", search.max_length_ratio,
         "Longest translation: so many tokens for each of the source, and 10 more.",
         above_up_to(0, SearchOptions::kMostLengthRatio));
  bind_draws(s, search);
  s.read("frequency_penalty", search.frequency_penalty,
         "Taken from a logit for each time that its token was generated.");
  s.read("presence_penalty", search.presence_penalty,
         "Taken from a logit if its token was generated.");
  s.read("repetition_penalty", search.repetition_penalty,
         "Divides positive logits of tokens in the prompt, a source of the same vocabulary and the "
         "output, and multiplies negative ones; 1: off.",
         positive());
  s.read("no_repeat_ngram_size", search.no_repeat_ngram_size,
         "No sequence of so many tokens comes twice; 0: off.", at_least(0));
  s.read("max_repeat", search.max_repeat,
         "No unit of 1 to 8 tokens comes more often than this in a row in an output; 0: off.",
         at_least(0));
  s.read("min_new_tokens", search.min_new_tokens, "Tokens before an output may end.", at_least(0));
  s.read("max_new_tokens", search.max_new_tokens,
         "Most tokens of an output; 0: max_length_ratio decides, or the positions of the model.",
         between(0, double(SearchOptions::kMostNewTokens)));
  const bool translates = config.task->can(kTranslates);
  const std::string why = concat("with task: ", config.task->name);
  s.read_if(translates, why, "mbr_samples", search.mbr_samples,
            "Minimum Bayes risk: translate and distil draw so many translations of each line and "
            "take the one that is most similar to all of them; 0: the search's best one.",
            between(0, SearchOptions::kMostBeams));
  s.read_choice_if(translates, why, "mbr_utility", search.mbr_utility, named(kMbrUtilities),
                   "How similar: chrF or BLEU with the mean counts of n-grams of all draws, or "
                   "with each draw, whose time grows with the square of mbr_samples.");
  s.read_input_file_if(translates, why, "shortlist", search.shortlist,
                       "File of translations of tokens, as tapestry shortlist or Marian's tools "
                       "write it: translate and distil then consider for each line only its "
                       "shortlist, so that probabilities are shares among these tokens.");
  s.read_if(translates, why, "shortlist_size", search.shortlist_size,
            "Tokens of a shortlist: so many of each source token, and so many of the most "
            "frequent ones.",
            at_least(1));
  s.read_if(translates, why, "source_language", config.languages.source_language,
            "Language of the sources of a model of many languages, such as eng_Latn; empty: the "
            "tokenizer's.");
  s.read_if(translates, why, "target_language", config.languages.target_language,
            "Language that such a model writes, such as deu_Latn; empty: the tokenizer's, if it "
            "names one.");
}

void bind_text_vectors(ConfigSection& s, Config& config) {
  ModelOptions& model = config.model;
  const std::string why = concat("with task: ", config.task->name);
  const std::string with_type = concat("with type: ", name_of(config.model_type));
  s.read_if(reads_tokens(config), why, "pooled_tokens", model.pooled_tokens,
            "Classes of tokens, and where answers begin and end, are read behind a layer as "
            "pooler says (ModernBERT).");
  s.read_choice_if(pools_classes(config), why, "classifier_pooling", model.class_pooling,
                   {{"cls", TextPooling::kFirst}, {"mean", TextPooling::kMean}},
                   "What the classes of a text are read from: its first token, or the mean of all "
                   "(some of ModernBERT's).");
  s.read_choice_if(has_pooler(config), config.model_type == ModelType::kEncoder ? why : with_type,
                   "pooler", model.pooler, poolers(),
                   "The layer in front of the classes of a text: its activation (BERT tanh, "
                   "DistilBERT relu, ELECTRA gelu), or gelu and a norm (ModernBERT).");
  const bool embeds = config.task->can(kEmbedsTexts);
  s.read_choice_if(
      embeds, why, "pooling", model.text_pooling,
      {{"mean", TextPooling::kMean}, {"cls", TextPooling::kFirst}, {"last", TextPooling::kLast}},
      "Which of a text's token vectors become its own: their mean, the first's, or "
      "the last's.");
  s.read_if(embeds, why, "normalize", model.unit_vectors,
            "The vectors of texts have length 1, so that their products are cosines.");
  s.read_if(embeds, why, "vector_size", model.vector_size,
            "Numbers of a vector, which a dense layer makes of what was pooled (LaBSE has one); 0: "
            "hidden_size, without it.",
            between(0, kMostWidth));
  const bool dense = embeds && model.vector_size > 0;
  s.read_choice_if(dense, "without vector_size", "vector_act", model.vector_tanh,
                   {{"tanh", true}, {"none", false}}, "How that layer ends.");
  s.read_if(dense, "without vector_size", "vector_bias", model.vector_bias,
            "That layer has a bias.");
}

void bind_embedding(ConfigSection& s, Config& config) {
  s.read("temperature", config.embedding.temperature,
         "Divides the products of vectors in the loss: the smaller, the more count the texts that "
         "are hard to tell apart.",
         positive());
  s.read_if(!examples_of(config).ranked, "with score_column", "both_directions",
            config.embedding.both_directions,
            "Sources are found by their targets, too, not only targets by their sources.");
}

void bind_preference(ConfigSection& s, Config& config) {
  using Loss = PreferenceLoss;
  PreferenceOptions& preference = config.preference;
  s.read_choice(
      "loss", preference.loss,
      {{"dpo", Loss::kDpo}, {"ipo", Loss::kIpo}, {"orpo", Loss::kOrpo}, {"simpo", Loss::kSimpo}},
      "dpo and ipo compare answers with the model of init_from, whose log-probabilities "
      "are computed once, before the first update; their validations tell how far the model has "
      "moved from it: kl, in nats by token, if the answers were its own. orpo and simpo do "
      "without.");
  s.read(
      "beta", preference.beta,
      "Factor of the rewards: the larger, the nearer dpo and ipo stay to the model of init_from; "
      "simpo needs 2 or more. Of orpo the weight of the odds.",
      positive());
  s.read_if(preference.loss == Loss::kSimpo, "without loss: simpo", "margin", preference.margin,
            "How much larger the reward of the better answer should be.", at_least(0));
  s.read_if(preference.loss == Loss::kDpo, "without loss: dpo", "label_smoothing",
            preference.label_smoothing,
            "Share of examples whose answers are thought to be swapped.", from_up_to_below(0, 0.5));
  s.read("chosen_weight", preference.chosen_weight,
         "Adds so much of the better answer's negative log-likelihood by token.", at_least(0));
}

void bind_answers(ConfigSection& s, Config& config) {
  AnswerOptions& answers = config.answers;
  s.read("max_answer_length", answers.max_answer_length, "Longest answer in tokens.",
         between(1, double(BlockOptions::kLongest)));
  s.read("no_answer", answers.no_answer,
         "A context may hold no answer, as in SQuAD 2: then the model may say so.");
}

void bind_evaluation(ConfigSection& s, Config& config) {
  EvaluationOptions& evaluation = config.evaluation;
  std::vector<ConfigChoice<std::string>> tokenizers;
  for (const WordRule& rule : word_rules()) {
    if (rule.make != nullptr && !rule.needs_model) tokenizers.push_back({rule.name, rule.name});
  }
  s.read_choice("bleu_tokenize", evaluation.bleu_tokenize, tokenizers,
                "How BLEU finds words: 13a and intl by the rules of mteval-v13a and v14, none at "
                "white space, char takes characters, zh Chinese characters and other words.");
  s.read("lowercase", evaluation.lowercase, "BLEU and chrF compare lower-cased text.");
  s.read(
      "rouge", evaluation.rouge,
      "Adds ROUGE-1, -2 and -L to the metrics, for summaries (English: it knows the letters a to "
      "z).");
  s.read("extra_metrics", evaluation.extra_metrics,
         "Scores of the validation beside BLEU and chrF: chrf++, ter.");
  s.read("num_beams", evaluation.num_beams,
         "Hypotheses of the translations that the validation makes; 1: greedy, the fastest.",
         between(1, SearchOptions::kMostBeams));
}

}  // namespace tapestry
