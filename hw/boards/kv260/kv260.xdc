# A Kria KV260: the K26 module on its carrier. The design has no pins of its own: all ways lead through the processing system.
# Clocks come with the block design.
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
