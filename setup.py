"""Shim for tools that still look for this file; pyproject.toml says everything."""

from setuptools import setup

setup()
