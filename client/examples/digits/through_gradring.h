#pragma once

#include <gradring/gradring.h>

#include <memory>
#include <string>
#include <vector>

#include "client/examples/digits/exchange.h"

namespace digits {

// The exchange through the node's daemon. This file is the whole of what a trainer needs to do to
// use gradring; everything else in the example would look the same without it.
class ThroughGradring : public Exchange {
 public:
  // Joins the job that `options` name and returns when all its ranks are there.
  ThroughGradring(const gradring_options& options, const Model& model);

  int rank() const override { return gradring_rank(comm_.get()); }
  int size() const override { return gradring_size(comm_.get()); }
  const char* node() const { return gradring_node(comm_.get()); }

  void broadcast(Model& model) override;
  Model::Gradients gradients() override { return gradients_; }
  void start(size_t layer) override;
  double finish(double loss) override;
  // Waits until every rank has come here: nobody leaves the job while another still needs it.
  void barrier();

 private:
  struct Pending {
    gradring_request request;
    std::string what;  // "the gradient of layer 2", for messages
  };
  struct Close {
    void operator()(gradring_comm* comm) const { gradring_close(comm); }
  };

  void submit(gradring_op op, std::string what);
  void wait_all();

  std::unique_ptr<gradring_comm, Close> comm_;
  std::vector<std::span<float>> gradients_;  // shared with the daemon, owned by comm_
  double* loss_ = nullptr;                   // likewise
  std::vector<Pending> pending_;
};

}  // namespace digits
