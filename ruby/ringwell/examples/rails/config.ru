# frozen_string_literal: true

require_relative "app"

Shop.initialize!
run Shop
