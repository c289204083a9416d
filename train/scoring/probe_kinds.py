"""The kinds of probes; importing this imports nothing heavy, so --help stays quick."""

# A kind of `train.scoring.probes.fit` -> what reports call it.
LINEAR = {
    "ridge": "Ridge regression (L2 1024, as in big_vision)",
    "logistic": "Logistic regression (the mean of five strengths of L2)",
    "lda": "Linear discriminant analysis (shrunk covariance)",
}
KINDS = {**LINEAR, "mlp": "A perceptron with one hidden layer"}
