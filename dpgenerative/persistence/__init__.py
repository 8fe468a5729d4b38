"""Files of fitted estimators and of interrupted fits."""
