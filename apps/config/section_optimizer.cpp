#include "apps/config/sections.h"

namespace tapestry {
namespace {

// Names are torch.optim.Muon's, where it has them.
void bind_muon(ConfigSection& s, bool reads, const std::string& why, Config& config) {
  MuonOptions& muon = config.optimizer.muon;
  s.read_if(
      reads, why, "nesterov", muon.nesterov,
      "What is made orthogonal is the gradient with momentum times the average that it moved; "
      "else the average.");
  s.read_choice_if(reads, why, "ns_coefficients", muon.ns_coefficients, named(kNewtonSchulz),
                   "The polynomials of the Newton-Schulz steps: quintic 3.4445, -4.775, 2.0315 in "
                   "each; polar_express another in each, which come nearer to orthogonal.");
  s.read_if(reads, why, "ns_steps", muon.ns_steps,
            "Newton-Schulz steps that make a matrix orthogonal.",
            between(1, MuonOptions::kMostSteps));
  s.read_choice_if(reads, why, "adjust_lr_fn", muon.adjust_lr_fn, named(kRatesByShape),
                   "What the rate of a matrix is multiplied by. original: sqrt(max(1, rows / "
                   "columns)). match_rms_adamw: 0.2 sqrt(max(rows, columns)), steps as large as "
                   "adamw's at the same rate. spectral_unclamped: sqrt(rows / columns).");
  s.read_if(reads, why, "cautious_weight_decay", muon.cautious_weight_decay,
            "weight_decay pulls a matrix only where its step, too, goes towards 0.");
  s.read_if(reads, why, "normuon_beta2", muon.normuon_beta2,
            "NorMuon: each row of a step is divided by the root of an average of its mean square, "
            "whose decay this is; 0: off. The paper has 0.95.",
            from_up_to_below(0, 1));
  s.read_if(reads, why, "adamw_learning_rate", config.training.adamw_learning_rate,
            "The rate after the warm-up of what is no matrix between layers: embeddings, the "
            "classifier, norms, biases, positions, which adamw does beside muon, by the same "
            "schedule. 0: 1e-3, or 1 with noam.",
            at_least(0));
  s.read_if(reads, why, "adamw_parameters", config.training.adamw_parameters,
            "Names of matrices between layers that adamw does nevertheless; * stands for any "
            "characters.");
}

}  // namespace

// The rule comes first: eps and weight_decay have another default for each.
void bind_optimizer(ConfigSection& s, Config& config) {
  OptimizerOptions& optimizer = config.optimizer;
  OptimizerType type = optimizer.type;
  s.read_choice("name", type, named(kOptimizerTypes), "The rule of an update.");
  if (type != optimizer.type) optimizer = optimizer_defaults(type);
  const OptimizerReads reads = reads_of(type);
  const std::string why = concat("with name: ", name_of(type));
  s.read("weight_decay", optimizer.weight_decay,
         "Pulls the matrices towards 0; biases and norms are left alone, unless decay_all is true. "
         "adamw and muon apply it apart from the gradient.",
         at_least(0));
  s.read("decay_all", config.training.decay_all,
         "weight_decay pulls biases and norms too, as all parameters.");
  s.read("decay_exclude", config.training.decay_exclude,
         "Names of parameters that weight_decay leaves alone; * stands for any characters.");
  s.read_if(reads.momentum, why, "momentum", optimizer.momentum,
            "Share of the last step that goes on; muon's averages gradients.",
            from_up_to_below(0, 1));
  s.read_if(reads.alpha, why, "alpha", optimizer.alpha, "Decay of the mean of squared gradients.",
            from_up_to_below(0, 1));
  s.read_if(reads.rho, why, "rho", optimizer.rho,
            "Decay of the means of squared gradients and steps.", from_up_to_below(0, 1));
  std::vector<double> betas(optimizer.betas.begin(), optimizer.betas.end());
  s.read_if(reads.betas, why, "betas", betas,
            "Decay of the means of gradients and of squared gradients.", from_up_to_below(0, 1));
  if (betas.size() == 2) {
    optimizer.betas = {betas[0], betas[1]};
  } else {
    s.complain("betas", "'training.optimizer.betas' must be two numbers, got ", betas.size(), '.');
  }
  s.read_if(reads.eps, why, "eps", optimizer.eps, "Added to the denominator of a step.",
            positive());
  s.read_choice_if(
      reads.state_dtype, why, "state_dtype", optimizer.state_dtype, named(kStateTypes),
      "Of the means that a rule keeps for each number of the model. bfloat16 halves "
      "their memory; they are rounded up or down at random, the same for any threads, "
      "ranks and resumes. float8 takes a quarter: a byte each and a scale for 256, on a "
      "CPU and with distributed.shard: none.");
  bind_muon(s, reads.muon, why, config);
}

}  // namespace tapestry
