// Keys and values that do not go with a task are refused, because they would have no effect.
#include <gmock/gmock.h>

#include "tests/apps/config/task_config_fixture.h"

namespace tapestry {
namespace {

/// A key or value that does not go with a task.
struct Misfit {
  const char* name;
  const char* task;
  std::string override;
  const char* message;  ///< behind "command line: <override>: "
};

void PrintTo(const Misfit& misfit, std::ostream* out) { *out << misfit.name; }

class TaskMisfitTest : public TaskConfigTest, public testing::WithParamInterface<Misfit> {};

TEST_P(TaskMisfitTest, IsRefusedInTheseWords) {
  const Misfit& misfit = GetParam();
  EXPECT_EQ(error_of(text_of(misfit.task), {misfit.override}),
            concat("command line: ", misfit.override, ": ", misfit.message));
}

const Misfit kMisfits[] = {
    {"FewerRanksOfOpenParts", "clm", "distributed={on_failure: shrink}",
     "'distributed.on_failure' shrink needs distributed.parts of 1 or more, by which fewer ranks "
     "have the same bits, got 0."},
    {"FewerRanksOfNone", "clm", "distributed={on_failure: shrink, parts: 1, engine: none}",
     "'distributed.on_failure' shrink is for ranks that train together, got distributed.engine: "
     "none."},
    {"FewerRanksOfNccl", "clm", "distributed={on_failure: shrink, parts: 1, sum: nccl}",
     "'distributed.on_failure' shrink does not go with distributed.sum: nccl, which has other bits "
     "for another number of ranks."},
    {"LengthOfSentencesWithBlocks", "clm", "data.max_length=64",
     "'data.max_length' has no effect with task: clm; see block_size, or rows: documents."},
    {"OverlongWithBlocks", "mlm", "data.overlong=drop",
     "'data.overlong' has no effect with task: mlm; see block_size, or rows: documents."},
    {"BlocksWithSentences", "denoising", "data.block_size=64",
     "'data.block_size' has no effect with task: denoising; see max_length."},
    {"LanguageOfAFreshTokenizer", "translation", "generation.target_language=deu_Latn",
     "'generation.target_language' needs a tokenizer that has languages, from init_from or "
     "tokenizer.path, got 'deu_Latn'."},
    {"RecurrenceOfOneStack", "clm", "model.decoder_self_attention=ssru",
     "'model.decoder_self_attention' has no effect with type: decoder."},
    {"RecurrenceWithLatents", "translation",
     "model={decoder_self_attention: ssru, kv_latent_size: 8}",
     "'model.kv_latent_size' must be 0 with decoder_self_attention: ssru, got 8."},
    {"RecurrenceThatStaysZero", "translation",
     "model={decoder_self_attention: ssru, zero_branches: true}",
     "'model.zero_branches' must be false with decoder_self_attention: ssru: behind its relu zeros "
     "would stay zeros."},
    {"RecurrenceWithoutPlacesToAdd", "translation",
     "model={decoder_self_attention: ssru, position_embedding: alibi}",
     "'model.position_embedding' must be sinusoidal, sinusoidal_fairseq, learned or none with "
     "decoder_self_attention: ssru, which has no scores that could tell positions."},
    {"UnknownLayerType", "clm", "model.layer_types=[full, windw]",
     "'model.layer_types': expected full, window or nope, got 'windw'."},
    {"LayersWithoutPositionsAmongAbsoluteOnes", "clm", "model.layer_types=[full, nope]",
     "'model.layer_types' 'nope' needs position_embedding rope: others do not belong to a layer."},
    {"PoolerOfNoClasses", "mlm", "model.pooler=gelu",
     "'model.pooler' has no effect with task: mlm."},
    {"PoolerOfTokensWithoutIt", "token_classification", "model.pooler=gelu",
     "'model.pooler' has no effect with task: token_classification."},
    {"PooledTokensOfWholeTexts", "classification", "model.pooled_tokens=true",
     "'model.pooled_tokens' has no effect with task: classification."},
    {"NarrowEmbeddingsOfALinearHead", "mlm", "model={embedding_size: 8, masked_head: linear}",
     "'model.embedding_size' must be 0 with masked_head linear, which reads as wide as "
     "hidden_size, "
     "got 8."},
    {"NarrowEmbeddingsOfADecoder", "clm", "model.embedding_size=8",
     "'model.embedding_size' has no effect with type: decoder."},
    {"OneNormForOneAfterTheOther", "clm", "model={norm_position: pre, shared_norm: true}",
     "'model.shared_norm' needs parallel_residual: others do not read the same."},
    {"PoolerOfVectors", "embedding", "model.pooler=relu",
     "'model.pooler' has no effect with task: embedding."},
    {"VectorsWithoutOthersToCompare", "embedding",
     "training={max_steps: 10, batch_type: sentences, batch_size: 1}",
     "'training.batch_size' must be at least 2 with task: embedding, which compares each pair with "
     "the others of its batch, got 1."},
    {"VectorsOfTwoVocabularies", "embedding", "tokenizer.share=false",
     "'tokenizer.share' must be true with task: embedding, whose one model reads both sides, got "
     "false."},
    {"CacheOfImages", "images", "data.cache=false", "'data.cache' has no effect with images."},
    {"FolderWithoutCache", "clm", "data={train: {text: /dev/null}, cache: false, cache_dir: here}",
     "'data.cache_dir' has no effect without cache."},
    {"TemperatureOfImages", "images", "data.sampling_temperature=5",
     "'data.sampling_temperature' has no effect with images."},
    {"WeightOfImages", "images", "data.train={images: /dev/null, labels: /dev/null, weight: 2}",
     "'data.train.weight' has no effect with images or points."},
    {"WeightOfOneOfTwoTexts", "clm", "data.train=[{text: /dev/null, weight: 2}, {text: /dev/null}]",
     "'data.train.weight' must be above 0 for each corpus of the list, or given for none."},
    {"PairWeightsOfValidation", "translation",
     "data.valid={source: /dev/null, target: /dev/null, pair_weights: /dev/null}",
     "'data.valid.pair_weights' has no effect in data.valid, whose pairs all count the same."},
    {"PairWeightsOfATable", "translation", "data.train={tsv: /dev/null, pair_weights: /dev/null}",
     "'data.train.pair_weights' has no effect without source and target."},
    {"ColumnOfPairWeightsOfFiles", "translation",
     "data.train={source: /dev/null, target: /dev/null, pair_weight_column: 3}",
     "'data.train.pair_weight_column' has no effect without tsv, csv, jsonl or parquet."},
    {"VocabSizeOfAFile", "translation", "tokenizer={path: /dev/null, vocab_size: 300}",
     "'tokenizer.vocab_size' has no effect with path."},
    {"WeightOfValidation", "translation", "data.valid={tsv: /dev/null, weight: 2}",
     "'data.valid.weight' has no effect in data.valid, whose examples all come once."},
    {"WeightOfOneOfTwo", "translation",
     "data.train=[{tsv: /dev/null, weight: 2}, {tsv: /dev/null}]",
     "'data.train.weight' must be above 0 for each corpus of the list, or given for none."},
    {"BlocksWithPrompts", "prompts", "data.block_size=64",
     "'data.block_size' has no effect with prompts; see max_length."},
    {"TextAmongPrompts", "prompts",
     "data.train=[{jsonl: /dev/null, prompt: '{a}', answer: '{b}'}, {text: /dev/null}]",
     "'data.train.1' must be of prompts with answers, as the first of data.train is."},
    {"PromptsAmongText", "clm",
     "data.train=[{text: /dev/null}, {jsonl: /dev/null, prompt: '{a}', answer: '{b}'}]",
     "'data.train.1' must be of text, as the first of data.train is."},
    {"TwoFilesOfQuestions", "question_answering", "data.train={jsonl: /dev/null, squad: /dev/null}",
     "'data.train.jsonl' excludes 'squad': give one of squad, tsv, csv, jsonl or parquet."},
    {"QuestionsAsPrompts", "question_answering", "data.train.prompt='{a}'",
     "unknown key 'prompt' in 'data.train'; known: tsv, csv, jsonl, parquet, squad, limit, "
     "weight."},
    {"StrideOfClasses", "classification", "data.doc_stride=4",
     "'data.doc_stride' has no effect with task: classification."},
    {"StrideOfNothing", "question_answering", "data.doc_stride=0",
     "'data.doc_stride' must be in [1, 16777216], got 0."},
    {"NoRoomForBothParts", "question_answering", "data.max_length=4",
     "'data.max_length' must be in [5, 16777216], got 4."},
    {"AnswersOfClasses", "classification", "answers.no_answer=true",
     "'answers' has no effect with task: classification."},
    {"TwoFilesOfPrompts", "prompts",
     "data.train={tsv: /dev/null, jsonl: /dev/null, prompt: '{1}', answer: '{2}'}",
     "'data.train.tsv' excludes 'jsonl': give one of jsonl, tsv, csv or parquet."},
    {"PromptWithoutField", "prompts", "data.train.prompt=question",
     "'data.train.prompt' must name a field of the data in braces, such as {question}."},
    {"AnswerWithOpenBrace", "prompts", "data.train.answer='{a'",
     "'data.train.answer' must close the brace of each field ({{ is a brace that is text)."},
    {"ColumnWithAWrongNumber", "prompts",
     "data.train={tsv: /dev/null, prompt: '{0}', answer: '{2}'}",
     "'data.train.prompt' must name the columns by their numbers from {1}, or as the header does, "
     "got {0}."},
    {"MatchOfText", "clm", "training.metric_for_best_model=exact_match",
     "'training.metric_for_best_model' must be one of nll, loss, ppl, accuracy, got "
     "'exact_match'."},
    {"LabelsWithoutClasses", "clm", "data.labels=[a, b]",
     "'data.labels' has no effect with task: clm."},
    {"MaskingOfACausalModel", "clm", "masking={probability: 0.2}",
     "'masking' has no effect with task: clm."},
    {"DenoisingOfAMaskedModel", "mlm", "denoising.objective=infilling",
     "'denoising' has no effect with task: mlm."},
    {"GenerationOfAMaskedModel", "mlm", "generation.num_beams=2",
     "'generation' has no effect with task: mlm."},
    {"GenerationOfClasses", "classification", "generation={}",
     "'generation' has no effect with task: classification."},
    {"EvaluationOfText", "denoising", "evaluation.lowercase=true",
     "'evaluation' has no effect with task: denoising."},
    {"EncoderLayersOfOneSequence", "clm", "model.encoder_layers=2",
     "'model.encoder_layers' has no effect with task: clm."},
    {"DecoderLayersOfOneSequence", "mlm", "model.decoder_layers=2",
     "'model.decoder_layers' has no effect with task: mlm."},
    {"HiddenLayersOfTwoSequences", "translation", "model.num_hidden_layers=2",
     "'model.num_hidden_layers' has no effect with task: translation."},
    {"SegmentsOfTwoSequences", "denoising", "model.type_vocab_size=2",
     "'model.type_vocab_size' has no effect with task: denoising."},
    {"ThetaWithoutRope", "clm", "model.rope_theta=5000",
     "'model.rope_theta' has no effect without position_embedding: rope."},
    {"LayoutWithoutRope", "clm", "model.rope_layout=half",
     "'model.rope_layout' has no effect without position_embedding: rope."},
    {"RangeWithoutFile", "clm", "data.train.range=[0, 0.9]",
     "'data.train.range' has no effect without documents: file."},
    {"EncoderForACausalModel", "clm", "model.type=encoder",
     "'model.type' must be decoder with task: clm, got 'encoder'. Did you mean 'decoder'?"},
    {"DecoderForAMaskedModel", "mlm", "model.type=decoder",
     "'model.type' must be encoder with task: mlm, got 'decoder'. Did you mean 'encoder'?"},
    {"EncoderForDenoising", "denoising", "model.type=encoder",
     "'model.type' must be one of encoder_decoder, rnn_attention with task: denoising, got "
     "'encoder'. Did you mean 'encoder_decoder'?"},
    {"HeadsForARecurrentModel", "translation",
     "model={type: rnn_attention, num_attention_heads: 2}",
     "'model.num_attention_heads' has no effect with type: rnn_attention."},
    {"LatentSizeOfQueriesAlone", "clm", "model.q_latent_size=8",
     "'model.q_latent_size' has no effect without kv_latent_size."},
    {"ImageModelForTexts", "classification", "model.type=vit",
     "'model.type' must be encoder with task: classification of texts, got 'vit'."},
    {"TextModelForImages", "images", "model.type=encoder",
     "'model.type' must be one of vit, linear with task: classification of images, got 'encoder'."},
    {"LayersOfALinearModel", "images", "model={type: linear, num_hidden_layers: 2}",
     "'model.num_hidden_layers' has no effect with type: linear."},
    {"PatchesOfALinearModel", "images", "model={type: linear, patch_size: 2}",
     "'model.patch_size' has no effect with type: linear."},
    {"PositionsOfImages", "images", "model.max_position_embeddings=64",
     "'model.max_position_embeddings' has no effect with type: vit."},
    {"WordsOfImages", "images", "model.tie_word_embeddings=true",
     "'model.tie_word_embeddings' has no effect with type: vit."},
    {"TokenizerOfImages", "images", "tokenizer.vocab_size=300",
     "'tokenizer' has no effect with images."},
    {"LengthOfImages", "images", "data.max_length=64",
     "'data.max_length' has no effect with images."},
    {"BatchTypeOfImages", "images", "training.batch_type=tokens",
     "'training.batch_type' has no effect with images: batch_size counts them."},
    {"HalfASize", "images", "data.image={height: 32}",
     "'data.image' must have height, width and channels or none of them, got 32, 0 and 0."},
    {"MeanWithoutDeviation", "images", "data.image={height: 32, width: 32, channels: 1, mean: [0]}",
     "'data.image.mean' and std must have a number for each of the 1 channels, or none, got 1 and "
     "0."},
    {"TextsAmongImages", "images", "data.train=[{images: /dev/null}, {tsv: /dev/null}]",
     "'data.train.1' must be of images, as the first of data.train is."},
    {"SplitOfImages", "images", "data.train.split=train",
     "unknown key 'split' in 'data.train'; known: tsv, csv, jsonl, parquet, images, labels, range, "
     "limit, "
     "weight."},
    {"ImagesWithoutAny", "classification", "data.image.height=28",
     "unknown key 'image' in 'data'; did you mean 'data.train.images'?"},
    {"MetricOfTranslation", "clm", "training.metric_for_best_model=bleu",
     "'training.metric_for_best_model' must be one of nll, loss, ppl, accuracy, got 'bleu'."},
    {"RougeThatIsNotMeasured", "translation", "training.metric_for_best_model=rouge_l",
     "'training.metric_for_best_model' needs evaluation.rouge: true, got 'rouge_l'."},
    {"TerThatIsNotMeasured", "translation", "training.metric_for_best_model=ter",
     "'training.metric_for_best_model' needs itself in evaluation.extra_metrics, got 'ter'."},
    {"ExtraMetricThatIsNone", "translation", "evaluation.extra_metrics=[meteor]",
     "'evaluation.extra_metrics' must be one of bleu, chrf, chrf++, ter, got 'meteor'."},
    {"MetricOfText", "classification", "training.metric_for_best_model=ppl",
     "'training.metric_for_best_model' must be one of accuracy, nll, loss, got 'ppl'."},
    {"SamplingWithBeams", "clm", "generation={do_sample: true, num_beams: 5}",
     "'generation.num_beams' must be 1 with do_sample, got 5."},
    {"MinimumAboveTheMaximum", "clm", "generation={min_new_tokens: 5, max_new_tokens: 4}",
     "'generation.min_new_tokens' must be at most max_new_tokens, got 5 and 4."},
    {"BestFitWithShares", "mlm",
     "data={train: {text: /dev/null}, packing: best_fit, sampling_temperature: 2}",
     "'data.packing' of best_fit does not go with shares of corpora (weight, "
     "sampling_temperature)."},
    {"PackingOfSentences", "denoising", "data.packing=best_fit",
     "'data.packing' has no effect with task: denoising; see max_length."},
    {"MaskOfDocumentRows", "clm",
     "data={train: {text: /dev/null}, rows: documents, document_mask: true}",
     "'data.document_mask' has no effect with rows: documents; see max_length."},
    {"BlockOfOne", "clm", "data.block_size=1",
     "'data.block_size' must be in [2, 16777216], got 1."},
    {"BlockBeyondThePositions", "clm",
     "model={position_embedding: learned, max_position_embeddings: 255}",
     "'model.max_position_embeddings' must be at least data.block_size for learned positions, got "
     "255 and 256."},
    {"BatchBelowABlock", "mlm", "training.batch_size=255",
     "'training.batch_size' must hold the tokens of data.block_size, got 255 and 256."},
    {"MaskingProbability", "mlm", "masking.probability=1.5",
     "'masking.probability' must be in (0, 1], got 1.5."},
    {"MaskingShares", "mlm", "masking={mask_share: 0.9, random_share: 0.2}",
     "'masking.random_share' must be at most 1 together with mask_share, got 0.2 and 0.9."},
    {"NothingMasked", "mlm", "masking.probability=0",
     "'masking.probability' must be in (0, 1], got 0."},
    {"SpansTooLong", "denoising", "denoising.mean_span_length=200",
     "'denoising.mean_span_length' must be in [1, 100], got 200."},
    {"VocabularyBelowTheSentinels", "denoising", "tokenizer.vocab_size=50",
     "'tokenizer.vocab_size' must be in [106, 16777216] with sentinels, got 50."},
    {"NoRoomForAToken", "classification", "data.max_length=2",
     "'data.max_length' must be in [3, 16777216], got 2."},
    {"NoiseDensity", "denoising", "denoising.noise_density=1",
     "'denoising.noise_density' must be in [0, 1), got 1."},
    {"SpanLength", "denoising", "denoising.mean_span_length=0.5",
     "'denoising.mean_span_length' must be in [1, 100], got 0.5."},
    {"Objective", "denoising", "denoising.objective=span_corruptio",
     "'denoising.objective' must be one of span_corruption, infilling, got 'span_corruptio'. Did "
     "you "
     "mean 'span_corruption'?"},
    {"Documents", "clm", "data.train.documents=line",
     "'data.train.documents' must be one of lines, paragraphs, fortunes, file, got 'line'. Did you "
     "mean 'lines'?"},
    {"RangeOfOneNumber", "clm", "data.train={text: /dev/null, documents: file, range: [0.5]}",
     "'data.train.range' must be two numbers, the first the smaller, such as [0, 0.9]."},
    {"RangeBackwards", "clm", "data.train={text: /dev/null, documents: file, range: [0.5, 0.5]}",
     "'data.train.range' must be two numbers, the first the smaller, such as [0, 0.9]."},
    {"RangeAboveOne", "clm", "data.train={text: /dev/null, documents: file, range: [0.5, 2]}",
     "every number of 'data.train.range' must be in [0, 1], got 2."},
    {"SameColumnTwice", "classification", "data.train={tsv: /dev/null, label_column: 2}",
     "'data.train.text_column' must differ from label_column, got 2 twice."},
    {"ColumnZero", "classification", "data.train={tsv: /dev/null, label_column: 0}",
     "'data.train.label_column' must be at least 1, got 0."},
    {"FreezeIsAList", "mlm", "training.freeze=embedding.weight",
     "'training.freeze' must be a list of texts, got 'embedding.weight'."},
    {"LabelTwice", "classification", "data.labels=[a, b, a]",
     "'data.labels' must name each class once, got 'a' twice."},
    {"OneLabel", "classification", "data.labels=[a]",
     "'data.labels' must name two classes or more, got one."},
    {"LabelsAreTexts", "classification", "data.labels=[[a], b]",
     "'data.labels' must be a list of texts, got a list."},
    {"MisspeltSection", "mlm", "maskin.probability=0.2",
     "unknown key 'maskin'; did you mean 'masking'?"},
    {"MisspeltKey", "clm", "data.blocksize=64",
     "unknown key 'blocksize' in 'data'; did you mean 'block_size'?"},
    {"MisspeltInitFrom", "clm", "init_form=runs/x",
     "unknown key 'init_form'; did you mean 'init_from'?"},
    {"KeyOfTranslations", "clm", "data.train.source=/dev/null",
     "unknown key 'source' in 'data.train'; `tapestry help data.train` lists the keys."},
    {"Temperature", "clm", "generation.temperature=0",
     "'generation.temperature' must be positive, got 0."},
    {"InitFromIsAPath", "clm", "init_from=[a]",
     "'init_from' must be the path of a folder, got a list."},
};

TEST_F(TaskConfigTest, DocumentMaskDoesNotGoWithGraphs) {
  EXPECT_THAT(
      error_of(text_of("clm"), {"cuda_graphs=true", "data.document_mask=true"}),
      testing::HasSubstr("'data.document_mask' does not go with cuda_graphs: each batch has other "
                         "documents."));
}

INSTANTIATE_TEST_SUITE_P(All, TaskMisfitTest, testing::ValuesIn(kMisfits),
                         [](const auto& info) { return info.param.name; });

// What Tapestry writes has every key, so a change of one takes the effect of others.
TEST_F(TaskConfigTest, KeysOfAWrittenConfigGiveWayToOverrides) {
  const std::string written = to_yaml(load("clm", {"training.optimizer.betas=[0.8,0.9]"}));
  const auto changed = [&](const std::vector<std::string>& overrides) {
    return load_config(write(written), overrides);
  };
  EXPECT_EQ(changed({"training.optimizer.name=sgd"}).training.max_steps, 10);
  EXPECT_EQ(changed({"data.rows=documents"}).data.rows, TextRows::kDocuments);
  const std::string talks = concat("data.train={jsonl: ", (folder_ / "data" / "d.jsonl").string(),
                                   ", messages_column: messages}");
  EXPECT_TRUE(examples_of(changed({talks})).talks);
  EXPECT_TRUE(examples_of(load_config({"config.json", to_json(load("clm"))}, {talks},
                                      /*check_files=*/false))
                  .talks);
  // An override without effect is wrong as ever, and so is a key of a file that somebody wrote.
  EXPECT_EQ(error_of(written, {"training.optimizer.name=sgd", "training.optimizer.eps=1"}),
            "command line: training.optimizer.eps=1: 'training.optimizer.eps' has no effect with "
            "name: sgd.");
  EXPECT_EQ(error_of(concat("task: clm\noutput_dir: run\ndata: {train: ", kCorpora.at("clm"),
                            ", block_size: 8}\ntraining: {max_steps: 10}\n"
                            "distributed: {parts: 1}\ncuda_graphs: false\n"),
                     {talks}),
            "c.yaml:3:47: 'data.block_size' has no effect with messages; see max_length.");
}

}  // namespace
}  // namespace tapestry
