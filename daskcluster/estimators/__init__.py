"""Estimators after scikit-learn's contract. They compose what the layers below offer."""
