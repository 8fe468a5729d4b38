"""Estimators around synthesizers: predictors, searches, pipelines."""
