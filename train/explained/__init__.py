"""What a model sees in photos, drawn and written down."""
