#pragma once

#include <gradring/gradring.hpp>
#include <string>
#include <vector>

#include "client/examples/digits/exchange.h"

namespace digits {

// The exchange through the node's daemon. This file is the whole of what a trainer needs to do to
// use gradring; everything else in the example would look the same without it. What it takes to go
// on when ranks are lost, or come in, is in through_elastic.h.
class ThroughGradring : public Exchange {
 public:
  // Joins the job and returns when all its ranks are there.
  ThroughGradring(const Model& model, const gradring_options& options);

  int rank() const override { return job_.rank(); }
  int size() const override { return job_.size(); }
  std::string node() const { return job_.node(); }

  void broadcast(Model& model) override;
  Model::Gradients gradients() override { return spans_; }
  void start(size_t layer) override;
  double finish(double loss) override;
  // Waits until every rank has come here: nobody leaves the job while another still needs it.
  void barrier();

 protected:
  gradring::Communicator job_;

 private:
  struct Pending {
    std::string what;  // "the gradient of layer 2", for messages
    gradring::Request request;
  };

  void wait_all();

  std::vector<gradring::Buffer<float>> gradients_;  // shared with the daemon, one a layer
  std::vector<std::span<float>> spans_;             // the same
  gradring::Buffer<double> loss_;
  std::vector<Pending> pending_;
};

}  // namespace digits
