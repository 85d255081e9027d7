# frozen_string_literal: true

module Ringwell
  # The gem's version. The gem works with every server that speaks the published API.
  VERSION = "0.1.0"
end
