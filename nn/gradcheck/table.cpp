// The rows of models in the gradient table.
#include "nn/gradcheck/cases.h"

namespace tapestry {
namespace {

using namespace gradchecks;

ModelOptions gpt_options() {
  ModelOptions gpt = small_options();
  gpt.norm_position = NormPosition::kPre;
  gpt.hidden_act = Activation::kGeluTanh;
  gpt.position_embedding = PositionEmbedding::kLearned;
  gpt.scale_embeddings = false;
  gpt.initializer_range = 0.3;
  return gpt;
}

ModelOptions llama_options() {
  ModelOptions llama = gpt_options();
  llama.hidden_size = 16;
  llama.num_attention_heads = 4;
  llama.num_key_value_heads = 2;
  llama.norm = NormKind::kRms;
  llama.bias = false;
  llama.hidden_act = {Activation::kSilu, /*gated=*/true};
  llama.position_embedding = PositionEmbedding::kRope;
  llama.tie_word_embeddings = false;
  return llama;
}

void add_pairs(Cases& cases, const Inputs& in) {
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, post-norm, tied", small_options()));
  cases.push_back(encoder_decoder_case(
      in, "EncoderDecoder, pre-norm, RMS, grouped, learned, untied", pre_norm_options()));
  ModelOptions sized = small_options();
  sized.head_size = 3;
  sized.value_head_size = 5;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, heads of their own size", sized));
  ModelOptions recomputed = small_options();
  recomputed.recompute = true;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, recomputed", recomputed));
  ModelOptions ended = small_options();
  ended.final_norm = ended.output_bias = true;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, final norm, output bias", ended));
  ModelOptions normed = small_options();
  normed.qk_norm = QkNorm::kProjection;
  normed.attention_bias = AttentionBias::kNone;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, normed queries and keys", normed));
  ModelOptions m2m = small_options();
  m2m.norm_position = NormPosition::kPre;
  m2m.position_embedding = PositionEmbedding::kFairseq;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, fairseq's sinusoids", m2m));
}

// T5's ways, of both kinds of models.
void add_relative_positions(Cases& cases, const Inputs& in) {
  ModelOptions t5 = gpt_options();
  t5.position_embedding = PositionEmbedding::kRelative;
  t5.attention_window = 3;
  t5.recompute = true;
  cases.push_back(language_model_case(in, "LanguageModel, relative positions", t5, true));
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, relative positions", t5));
  t5.recompute = false;
  t5.attention_window = 0;
  t5.norm = NormKind::kRms;
  t5.bias = false;
  t5.hidden_act = {Activation::kGeluTanh, /*gated=*/true};
  t5.head_size = 3;
  t5.attention_scale = 0.8;
  t5.logit_scale = 0.6;
  t5.tie_word_embeddings = false;
  t5.share_encoder_decoder_embeddings = true;
  t5.relative_attention_num_buckets = 6;
  t5.relative_attention_max_distance = 5;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, T5", t5));
  t5.attention_softcap = 0.7;
  t5.logit_softcap = 0.9;
  t5.recompute = true;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, softcaps, relative positions", t5));
  t5.attention_softcap = t5.logit_softcap = 0;
  t5.recompute = false;
  cases.push_back(language_model_case(in, "LanguageModel, scaled scores and logits", t5, true));
}

void add_causal_models(Cases& cases, const Inputs& in) {
  ModelOptions ended = small_options();
  ended.final_norm = ended.output_bias = true;
  cases.push_back(language_model_case(in, "LanguageModel, final norm, output bias", ended, true));
  const ModelOptions gpt = gpt_options(), llama = llama_options();
  cases.push_back(language_model_case(in, "LanguageModel, GPT-2", gpt, true));
  cases.push_back(language_model_case(in, "LanguageModel, Llama", llama, true));
  ModelOptions qwen2 = llama;
  qwen2.attention_bias = AttentionBias::kInputs;
  cases.push_back(language_model_case(in, "LanguageModel, Qwen2", qwen2, true));
  ModelOptions qwen3 = llama;
  qwen3.head_size = 6;
  qwen3.qk_norm = QkNorm::kHead;
  cases.push_back(language_model_case(in, "LanguageModel, Qwen3", qwen3, true));
  ModelOptions deepseek = llama;
  deepseek.num_key_value_heads = 0;
  deepseek.kv_latent_size = 6;
  deepseek.q_latent_size = 7;
  cases.push_back(language_model_case(in, "LanguageModel, DeepSeek", deepseek, true));
  ModelOptions alibi = gpt;
  alibi.position_embedding = PositionEmbedding::kAlibi;
  alibi.value_head_size = 3;
  cases.push_back(language_model_case(in, "LanguageModel, ALiBi, narrow values", alibi, true));
}

// Layers that differ from each other, and other ways through a layer.
void add_layers_that_differ(Cases& cases, const Inputs& in) {
  ModelOptions o = llama_options();
  o.num_hidden_layers = 3;
  ModelOptions gemma = o;
  gemma.head_size = 6;
  gemma.qk_norm = QkNorm::kHead;
  gemma.norm_position = NormPosition::kSandwich;
  gemma.norm_unit_offset = true;
  gemma.attention_window = 2;
  gemma.layer_types = {LayerType::kWindow, LayerType::kFull};
  gemma.window_rope_theta = 100;
  cases.push_back(language_model_case(in, "LanguageModel, Gemma 3", gemma, true));
  gemma.qk_norm = QkNorm::kNone;
  gemma.window_rope_theta = 0;
  gemma.attention_softcap = 0.9;
  gemma.logit_softcap = 0.8;
  cases.push_back(language_model_case(in, "LanguageModel, Gemma 2", gemma, true));
  ModelOptions olmo = o;
  olmo.qk_norm = QkNorm::kProjection;
  olmo.norm_position = NormPosition::kBranch;
  olmo.layer_types = {LayerType::kNope, LayerType::kFull};
  cases.push_back(language_model_case(in, "LanguageModel, OLMo 2, nope layers", olmo, true));
  ModelOptions neox = o;
  neox.norm = NormKind::kLayer;
  neox.bias = true;
  neox.num_key_value_heads = 0;
  neox.hidden_act = Activation::kGelu;
  neox.parallel_residual = true;
  neox.partial_rotary_factor = 0.5;
  neox.recompute = true;
  cases.push_back(language_model_case(in, "LanguageModel, GPT-NeoX", neox, true));
  ModelOptions gptj = neox;
  gptj.shared_norm = true;
  gptj.attention_bias = AttentionBias::kNone;
  cases.push_back(language_model_case(in, "LanguageModel, GPT-J", gptj, true));
  ModelOptions modern = o;
  modern.norm = NormKind::kLayer;
  modern.embedding_norm = true;
  modern.first_norm = false;
  modern.attention_window = 2;
  modern.layer_types = {LayerType::kFull, LayerType::kWindow};
  cases.push_back(language_model_case(in, "LanguageModel, ModernBERT", modern, false));
  ModelOptions earlier = o;
  earlier.residual_scalars = true;
  earlier.value_residual = true;
  cases.push_back(language_model_case(in, "LanguageModel, what earlier layers had", earlier, true));
  earlier.recompute = true;
  earlier.qk_norm = QkNorm::kHead;
  cases.push_back(language_model_case(in, "LanguageModel, the same, recomputed", earlier, true));
  ModelOptions sandwich = small_options();
  sandwich.norm_position = NormPosition::kSandwich;
  sandwich.attention_window = 2;
  sandwich.layer_types = {LayerType::kFull, LayerType::kWindow};
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, sandwich-norm, windows", sandwich));
  sandwich.residual_scalars = true;
  sandwich.value_residual = true;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, what earlier layers had", sandwich));
}

void add_masked_models(Cases& cases, const Inputs& in) {
  ModelOptions bert = gpt_options();
  bert.norm_position = NormPosition::kPost;
  bert.hidden_act = Activation::kGelu;
  bert.embedding_norm = true;
  bert.type_vocab_size = 2;
  cases.push_back(language_model_case(in, "LanguageModel, BERT", bert, false));
  ModelOptions plain = bert;
  plain.transformed_head = false;
  plain.output_bias = true;
  cases.push_back(language_model_case(in, "LanguageModel, masked, linear head", plain, false));
  cases.push_back(classifier_case(in, "SequenceClassifier", bert));
  cases.push_back(tokens_case(in, "TokenClassifier", bert));
  ModelOptions distil = bert, modern = bert;
  distil.pooler = Pooler::kRelu;
  cases.push_back(classifier_case(in, "SequenceClassifier, DistilBERT", distil));
  modern.pooler = Pooler::kNormed;
  modern.bias = false;
  modern.class_pooling = TextPooling::kMean;
  cases.push_back(classifier_case(in, "SequenceClassifier, ModernBERT", modern));
  ModelOptions behind_it = modern;
  behind_it.pooled_tokens = true;
  cases.push_back(tokens_case(in, "TokenClassifier, ModernBERT", behind_it));
  ModelOptions narrow = bert;
  narrow.embedding_size = 3;
  cases.push_back(language_model_case(in, "LanguageModel, ELECTRA", narrow, false));
  cases.push_back(embedder_case(in, "TextEmbedder", bert));
  ModelOptions last = modern;
  last.text_pooling = TextPooling::kLast;
  last.unit_vectors = false;
  cases.push_back(embedder_case(in, "TextEmbedder, last token", last));
  ModelOptions dense = bert;
  dense.vector_size = 5;
  cases.push_back(embedder_case(in, "TextEmbedder, dense layer", dense));
  ModelOptions spans = bert;
  spans.bias = false;  // a softmax over places cancels a common term, such as the last norm's bias
  cases.push_back(span_case(in, "SpanExtractor", spans));
}

void add_image_models(Cases& cases, const Inputs& in) {
  ModelOptions vit = gpt_options();
  vit.patch_size = 2;
  cases.push_back(vision_transformer_case(in, "VisionTransformer", vit));
  ModelOptions deit = vit;
  deit.pooled_head = false;
  deit.distillation_token = true;
  cases.push_back(vision_transformer_case(in, "VisionTransformer, DeiT", deit));
  vit.pooled_head = false;
  vit.position_embedding = PositionEmbedding::kRope;
  cases.push_back(vision_transformer_case(in, "VisionTransformer, rotary, linear head", vit));
  cases.push_back(linear_classifier_case(in, "LinearClassifier", vit));
}

void add_recurrence(Cases& cases, const Inputs& in) {
  const Var steps = in.normal({4, 3, 5}, 4), row = in.normal({6, 4}, 5);
  const Var before = in.normal({3, 8}, 6), states = in.normal({6, 4}, 7);
  const Tensor step_lengths = in.lengths({4, 1, 3});
  cases.push_back(layer_case<GruLayer>(
      in, "GruLayer, both directions",
      GruLayer::Options{.in = 5, .hidden_size = 4, .bidirectional = true}, {steps, before},
      [=](const GruLayer& f) { return f(steps, {.lengths = step_lengths, .initial = before}); }));
  cases.push_back(layer_case<GruLayer>(
      in, "GruLayer, step", GruLayer::Options{.in = 4, .hidden_size = 4}, {row, states},
      [=](const GruLayer& f) { return f.step(f.input(row), states); }));
  const Var remembered = in.normal({6, 4, 6}, 8);
  const Tensor memory_lengths = in.lengths({4, 1, 3, 2, 4, 1});
  cases.push_back(layer_case<AttentiveGru>(
      in, "AttentiveGru", AttentiveGru::Options{.hidden_size = 4, .memory_size = 6},
      {row, states, remembered}, [=](const AttentiveGru& f) {
        const AttentiveGru::Memory keys = f.remember(remembered, memory_lengths);
        return f.step(f.word(row), f.attend(states, keys).out, states);
      }));
  cases.push_back(rnn_attention_case(in, "RnnAttention, tied", small_options()));
  ModelOptions untied = pre_norm_options();
  untied.output_bias = true;
  cases.push_back(rnn_attention_case(in, "RnnAttention, untied, output bias", untied));
  ModelOptions fixed = small_options();
  fixed.attends = false;
  cases.push_back(rnn_attention_case(in, "RnnAttention, one fixed vector", fixed));
}

}  // namespace

std::vector<GradcheckCase> model_gradchecks(const GradcheckPlace& place) {
  Cases cases;
  const Inputs in(place);
  add_layers(cases, in);
  add_attention_layers(cases, in);
  add_blocks(cases, in);
  add_pairs(cases, in);
  add_r_drop(cases, in);
  add_alignments(cases, in);
  add_preferences(cases, in);
  add_relative_positions(cases, in);
  add_causal_models(cases, in);
  add_layers_that_differ(cases, in);
  add_masked_models(cases, in);
  add_image_models(cases, in);
  add_recurrence(cases, in);
  return cases;
}

}  // namespace tapestry
