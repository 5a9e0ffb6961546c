"""expected.py's entries for the tests of TensorFlow and Keras."""

_ERRORS = ("expects tf.errors.FailedPreconditionError. Eagerly it is gradring.GradringError, with the rank, node and "
           "process to blame; in a graph tf.errors.UnknownError with its text, as TensorFlow has no other for what "
           "Python code raises")
_ARGUMENTS = "expects tf.errors.InvalidArgumentError, which comes from graphs; eagerly it is ValueError"
_OVERFLOW = ("multiplies four numbers of up to 100 in float16, whose product overflows: with four ranks TensorFlow's "
             "own result, compared with itself, does not pass")
_KERAS_2 = "is written for Keras 2: "

_TENSORFLOW = {
    **{f"test_horovod_{one}": ("differs", _ERRORS) for one in (
        "allgather_error", "allgather_type_error", "allreduce_error", "allreduce_type_error", "alltoall_rank_error",
        "alltoall_type_error", "broadcast_error", "broadcast_rank_error", "broadcast_type_error", "reducescatter_error",
        "reducescatter_type_error")},
    **dict.fromkeys(["test_horovod_alltoall_equal_split_length_error", "test_horovod_alltoall_splits_error"],
                    ("differs", _ARGUMENTS)),
    "test_horovod_allreduce_product_cpu": ("not applicable", _OVERFLOW),
    "test_horovod_grouped_allreduce_product_cpu": ("not applicable", _OVERFLOW),
    "test_horovod_syncbn_cpu": ("not applicable", _KERAS_2 + "BatchNormalization takes `fused`"),
    "test_partial_distributed_gradient_tape": ("not applicable", _KERAS_2 + "it asks variables for their ref()"),
}
_KERAS = {
    **dict.fromkeys(["test_sparse_as_dense", "test_sparse_as_dense_with_grad_aggregation"],
                    ("not applicable", _KERAS_2 + "an optimizer's argument is `lr`")),
    **dict.fromkeys([f"test_gradient_aggregation{which}_{i}" for which in ("", "_with_local_vars") for i in (0, 1)],
                    ("not applicable", _KERAS_2 + "an optimizer has a name before its learning rate, and "
                                                  "_compute_gradients()")),
    **dict.fromkeys(["test_grad_aggregation_with_inf_grad", "test_partial_distributed_optimizer"],
                    ("not applicable", _KERAS_2 + "an optimizer has _compute_gradients()")),
    "test_broadcast_global_variables_callback_with_local_vars": (
        "not applicable", _KERAS_2 + "it asks variables for their ref()"),
    "test_legacy_optimizer": ("not applicable", _KERAS_2 + "optimizers.legacy"),
    "test_train_model_lr_schedule": ("not applicable", _KERAS_2 + "losses and layers that Keras 3 does not have"),
}
EXPECTED_TENSORFLOW = {
    **{f"test_tensorflow.py::{test}": why for test, why in _TENSORFLOW.items()},
    **{f"test_tensorflow2_keras.py::{test}": why for test, why in _KERAS.items()},
}
