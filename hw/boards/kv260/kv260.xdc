# A Kria KV260: the K26 module on its carrier. The design has no pins: all connections use the processing system.
# The block design defines the clocks.
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
