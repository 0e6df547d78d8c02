"""Parts shared by all estimators, which follow scikit-learn's contract."""
