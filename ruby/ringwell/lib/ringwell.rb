# frozen_string_literal: true

require_relative "ringwell/base"
require_relative "ringwell/rails" if defined?(Rails::Railtie)
